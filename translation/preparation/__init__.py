"""What only prepare_data.py uses: readers of the public corpora, and the toy languages."""
