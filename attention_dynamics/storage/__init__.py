"""Reading and writing files: atomic writes, restricted unpickling, archives, text, the hub."""
