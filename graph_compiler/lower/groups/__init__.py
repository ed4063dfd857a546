"""Neighbouring steps over the same rows as one step, where that is faster.

`groups` finds them, `members` says what each reads and writes. Tile by tile of rows, each member
does its part (`rows`), and what they pass on stays in a tile [rows, elements]. So softmax is one
pass over its rows, and attention a loop over heads and tiles of rows. What alone reads a product
finds it in PSUM (`row_products`), and of one tile of rows a product between products is made with
rows and columns exchanged (`turned_products`), so that nothing is transposed. A row that is added
to a product is one more product (`added_rows`). Rows that later steps read stay on chip
(`device.Held`), but not beyond the beginning of a loop on the device. Means and variances of rows
are one pass of `bn_stats` (`moments`).
"""
