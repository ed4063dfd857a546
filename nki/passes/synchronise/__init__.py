"""Semaphores: which instruction waits for which.

`synchronise` takes the levels of a body in turn, and its docstring explains the method. `waits`
walks through one level and finds its waits, with the vector clocks of `events`; `periods` skips
iterations of unrolled loops that repeat.
"""
