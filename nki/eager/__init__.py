"""Eager mode: a kernel's operations compute while its Python runs.

`eager` is the context that author's calls reach; its `interpreter` executes one operation at a time
on `storage`s. Several cores take turns (`core_threads`), and `numbers` tells whether they compute
the same.
"""
