"""Addresses for tensors on chip, and what is done where they do not fit.

1. `roots`: tensors within others become parts of these. `ahead`: tensors that first loads fill live
   through the whole loop.
2. `allocate` gives addresses: `live_ranges` in the author's order, next-fit by `sweep`, which
   `rounds` restarts so that unrolled iterations get equal addresses; `quadrants` may move tensors
   to other partitions.
3. Where the sweep fails: `packing` places with all live ranges in view, `pressure` reorders
   operations so that less is live, `spill` moves tensors to the next memory.
"""
