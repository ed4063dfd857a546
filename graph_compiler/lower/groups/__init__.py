"""Operator fusion by rows: neighbouring steps over the same rows become one step.

1. `groups` finds them where fusion is faster, by the price of `savings`; `members` says what each
   reads and writes.
2. `rows` emits a group, tile by tile of rows: each member does its part, and what they pass on
   stays in a tile [rows, elements] (`resident_rows`). So softmax is one pass over its rows, and
   attention a loop over heads and tiles of rows, several heads at once. Rows that later steps read
   stay on chip (`device.Held`).
3. Products in a group: a nest that alone reads one finds it in PSUM (`row_products`), a bias is one
   more matmul (`added_rows`), and a product between products is computed transposed
   (`transposed_products`). One column of scores stands for all that a mask hides from a tile of
   rows (`masked_columns`). Means and variances of rows are one pass of `bn_stats` (`moments`).
"""
