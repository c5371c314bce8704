"""Tables, figures, the example viewer and the report."""
