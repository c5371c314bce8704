"""What is measured: logs, agreement, statistics."""
