"""Graphs to tile IR.

1. Between the host executor's `simplify` and `schedule`, `rewrites` change the graph, and `casts`
   gives values the types that `GraphOptions` ask for.
2. `schedule` makes a list of steps of the graph: loop nests of fused element-wise work, folds,
   products, copies at computed places, control flow, on strided views of buffers. What the engines
   have no operations for is a graph of others (`expansions`); what a device does otherwise than the
   host is in `assemble.machine`. `aliases` puts results in the memory of parameters.
3. For the two cores of a logical core `cores` divides the steps.
4. The builder emits each step (`control.flow`): `nests`, `products`, `movement`, `groups` of
   neighbouring steps, and `draws` of random numbers. `kernels` puts the tile IR of NKI kernels
   where the graph calls them.

The passes of kernels (`nki.passes`) do the rest.

- Where several ways of doing a step are right, cost decides. No count is special, and what is the
  same along a row is computed once.
- Intermediate values take turns in an arena in HBM (`graph_compiler.storage.arena`), each from its
  first use in the order of emission to its last and some operations more, so that nothing waits for
  a place.
- Where no rule says what is best there are plans (`limits`). From -O2 on a graph is compiled and
  timed with each plan, up to 80,000 operations in all. A loop whose trips data decide is timed as
  one trip.
- What has no form on the device is `hlo-not-compiled`; nothing runs on the host instead.
"""
