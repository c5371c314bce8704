"""What only prepare_data.py uses: readers of the public distributions, and the toy corpus."""
