"""Loop nests of fused element-wise work: maps, folds, transpositions.

- `nest` cuts a nest into tiles by what they cost: which dimensions lie along partitions, which are
  free, which are loops on the device. What partitions do not divide is a tile of its own
  (`nest.Rest`).
- `operands` loads and stores. A tile lies as memory has its operand, so that engines exchange
  elements of a partition where operand and result disagree.
- `plans` chooses the tiling of a nest. `elementwise` emits maps, `row_folds` folds of rows,
  `columns` and `column_folds` folds of columns, which share rows and columns among partitions,
  `folds` those of several arrays by any computation.
- `permutation` and `boxes` move boxes that source and target have in long runs. On chip engines
  copy elements of a partition, or the tensor engine exchanges what lies along partitions.
- `evaluation` computes a nest's values; `arithmetic` has the element-wise opcodes as operations on
  tiles, `integers` and `angles` those that take several, `combined` two that an engine does at
  once.
"""
