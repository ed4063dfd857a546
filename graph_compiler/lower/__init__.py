"""Graphs to tile IR.

1. The host executor's `simplify` and `schedule` make a list of steps of the graph: loop nests of
   fused element-wise work, folds, products, copies at computed places, control flow, on strided
   views of buffers. What a device does otherwise than the host is in `assemble.machine`.
2. For the two cores of a logical core `cores` decides which one does what of each step, and where
   they meet: `halves` cuts a step in two, `extents` says what a step touches, `estimates` how long
   it takes, `homes` in which memory values are then.
3. Each step is emitted by the builder (`flow`): `elementwise` and `folds` cut nests into tiles
   (`nest`), `product` drives the tensor engine, `movement` moves blocks and `scatters` combines
   them; `arithmetic` has the element-wise opcodes as operations on tiles, `integers` and `angles`
   those that take several.
4. What the engines have no operations for is a graph of others, written as HLO text: `expansions`,
   `linear`. `computations` applies a computation of the graph to elements, windows and slices.
   `kernels` puts the tile IR of NKI kernels where the graph calls them.
5. `layers` makes one loop of equal layers. `loops` schedules loops, `counted` has those whose
   trips are known, `aliases` results in the memory of parameters.

Between the host's simplifying and scheduling, `casts` and `float8` give values the types that
`GraphOptions` ask for; of 64-bit integers `ranges` makes 32-bit ones, and `pairs`
two, with the rules of `pair_rules` on the arithmetic of `pair_numbers`.

The passes of kernels (`nki.passes`) do the rest.
"""
