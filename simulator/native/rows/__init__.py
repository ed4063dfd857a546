"""Micro-kernels of the rows that work along the elements of each partition, and their plans."""
