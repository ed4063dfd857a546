"""The steps of a graph for the two cores of a logical core.

`cores` decides which one does what of each step, and where they meet: only where one touches what
the other has written. `halves` cuts a step in two, `extents` says what a step touches, `estimates`
how long it takes, `homes` in which memory values are then. A value that one core writes and reads
is in memory of its own.
"""
