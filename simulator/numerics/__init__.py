"""Numbers as the engines compute them, in NumPy and as fixed sequences of operations."""
