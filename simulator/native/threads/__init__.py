"""Threads that share the parts of one call, and whether this machine has CPUs for them."""
