"""Micro-kernels of all rows but those in `simulator.native.matmul`, and their plans.

Most have one of three shapes, and stay within partitions, so that they can be queued. `elementwise`
maps elements: a `MapKernel` of steps from the tables, with masks and affine numbers as further
inputs. `lockstep` carries something along a row, values or generator states, through 16 rows at
once, since the order within a row is fixed. `lines` looks at a row several times, as adjacent fp32.
`across`, `gather` and `indexed` move or reduce between partitions.

Plans of rows that state their meaning are in `meaning`, with `accumulate`, `copied` and
`from_first`; they and the others use `copy`, `reduction`, `partials` and `through_rows`. Families
have files of their own: `dma_sum`, `gather`, `random`, `random_state`, `registers`, `scan`,
`search`, `sequence`, `statistics`.
"""
