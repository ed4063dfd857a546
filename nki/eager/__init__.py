"""Eager mode: a kernel's operations compute while its Python runs.

`eager` has the context that an author's calls reach. Its `interpreter` executes one operation at a
time on the tensors of `storage`. `launch` is what the cores of a run share. Several cores take
turns (`core_threads`), and `numbers` tells whether they compute the same.
"""
