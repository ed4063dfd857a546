"""Graphs to tile IR.

1. The host executor's `simplify` and `schedule` make a list of steps of the graph: loop nests of
   fused element-wise work, folds, products, copies at computed places, control flow, on strided
   views of buffers. What a device does otherwise than the host is in `assemble.machine`.
2. For the two cores of a logical core `cores` decides which one does what of each step, and where
   they meet: `halves` cuts a step in two, `extents` says what a step touches, `estimates` how long
   it takes, `homes` in which memory values are then.
3. Each step is emitted by the builder (`flow`): `elementwise` and `folds` cut nests into tiles
   (`nest`), `evaluation` has their steps, `product` drives the tensor engine, `movement` moves
   blocks and `scatters` combines them; `arithmetic` has the element-wise opcodes as operations on
   tiles, `integers` and `angles` those that take several.
4. What the engines have no operations for is a graph of others, written as HLO text: `expansions`,
   `linear`. `computations` applies a computation of the graph to elements, windows and slices.
   `kernels` puts the tile IR of NKI kernels where the graph calls them. `collectives` makes
   exchanges of blocks between ranks of what they do together; all ranks run one program.
5. `layers` makes one loop of equal layers. `loops` schedules loops, `counted` has those whose
   trips are known, `aliases` results in the memory of parameters.

Between the host's simplifying and scheduling, `casts` and `float8` give values the types that
`GraphOptions` ask for; of 64-bit integers `ranges` makes 32-bit ones, and `pairs`
two, with the rules of `pair_rules` on the arithmetic of `pair_numbers`.

The passes of kernels (`nki.passes`) do the rest.

Where several ways of doing a step are right, cost decides:

- A nest is cut into tiles by what they cost: which dimension lies along partitions, which are free,
  which are loops on the device.
- Neighbouring nests and products over the same rows become a group (`groups`, `members`) if that is
  faster: tile by tile of rows, each member does its part (`rows`), and what they pass on stays in a
  tile [rows, elements]. So softmax is one pass over its rows, and attention a loop over heads and
  tiles of rows. What alone reads a product finds it in PSUM, and of one tile of rows a product
  between products is made with rows and columns exchanged (`turned_products`), so that nothing is
  transposed. Rows that later steps read stay on chip (`device.Held`), but not beyond the
  beginning of a loop on the device.
- The operands of products have the depth along partitions (`sides`). It is folded, with
  k = partition * tiles + tile, so that row-major operands are loaded in long runs. Where tiles on
  chip have it in order it stays so. Blocks of columns are as wide as long runs need, and the depth
  is loaded part by part, so that sums begin with the first one. Tiles of rows take rows by turns
  (`cut`), so that several tiles are moved at once.
- Nests with one operand that change its order (`permutation`, `boxes`) move boxes that source and
  target have in long runs. On chip engines copy elements of a partition, or the tensor engine
  exchanges what lies along partitions.
- No count is special: what partitions do not divide is a tile of its own (`nest.Rest`), and a tile
  lies as memory has its operand (`operands`), so that engines exchange elements of a partition
  where operand and result disagree. Folds of columns share rows and columns among partitions
  (`columns`). What is the same along a row is computed once.
- A convolution (`convolution`, `images`, `bands`) loads bands of its image with features along
  partitions and multiplies shifted views of them. Features that fill partitions badly are there
  for several places of the window at once. Pixels or outputs lie along partitions of the result,
  whichever costs less.
- Equal layers are found by their operations, checked by their wiring, and cut where the least goes
  from one layer to the next; weights lie one behind another in HBM. What a loop carries stays on
  chip from trip to trip (`flow`).
- Means and variances of rows are one pass of `bn_stats` (`moments`). Heads that products take are
  views of projections computed by rows (`kept`).
- Functions that a graph spells out (gelu, silu, softplus) are found by what they compute
  (`composites`): a value that depends on one other value alone is evaluated at sample points, in
  float64, and compared with the scalar engine's functions.
- Intermediate values take turns in an arena in HBM (`nki.passes.place.arena`), each from its first
  use in the order of emission to its last and some operations more, so that nothing waits for a
  place.
- The cores of a logical core meet only where one touches what the other has written; a value that
  one core writes and reads is in memory of its own.
- Where no rule says what is best there are plans (`limits`). From -O2 on a graph is compiled and
  timed with each plan, up to 80,000 operations in all. A loop whose trips data
  decide is timed as one trip.

64-bit integers become 32-bit ones where ranges prove it (`ranges`), else pairs of these. Scatters
that add or assign take 128 updates at a time: a product with the matrix of equal places sums those
of one place, and the last of several is stored. What has no form on the device is
`hlo-not-compiled`; nothing runs on the host instead.
"""
