"""Elements that move to places which are computed while a program runs.

`blocks` has slices, updates and gathers, `tables` gathers of single elements, `known_places`
gathers whose places are constants, and `affine_places` those whose places count evenly, which are
views; `scatters` combine updates. Scatters that add or assign take 128 updates at a time: a product
with the matrix of equal places sums those of one place, and the last of several is stored. Those of
`ordered_scatters` are combined one after another. `sorting` sorts rows in the fastest way:
`sort_network` by a network of exchanges, `long_rows` what has no room on chip, and `largest` few
elements; `narrow_sorts` finds the sorts of which few are read. Tiles of `sort_rows` are in the
order that `sort_orders` compares by, of `sort_keys` or any other, and `payloads` says how they are
carried along. `cumulative` has sums of rows up to each of their elements.
"""
