"""Rewrites of a graph, before it is scheduled.

- 64-bit integers become 32-bit ones where `ranges` proves it; else `pairs` makes two of each, with
  the rules of `pair_rules` on the arithmetic of `pair_numbers`. `random_bits` has generators.
- `float8` computes f8e4m3fn as bf16 where a target lacks it.
- `composites` finds functions that a graph spells out (gelu, silu, softplus): a value that depends
  on one other value alone (`dominators`) is evaluated at sample points, in float64, and compared
  with the scalar engine's functions.
- `factors` makes constant factors of products part of constant weights, `affine_operands` those
  and sums of columns in front of products.
- `masks` computes masks that are made of positions alone.
- `comparisons` of integers of which one is small are those of fp32 numbers.
- `constants` has arrays in another type.
- `layouts` chooses layouts, so that heads are views.
- `hoisted_products` multiplies what a loop goes through before the loop, `sums_of_steps` sums up
  products behind it. `written` has nodes that are written as text.
- `trips` says how often a loop runs.
"""
