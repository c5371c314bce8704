"""Runs and outputs: paths, configs, checkpoints, records, resumable training."""
