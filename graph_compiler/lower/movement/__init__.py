"""Elements that move to places which are computed while a program runs.

`blocks` has slices, updates and gathers, `tables` gathers of single elements, `known_places`
gathers whose places are constants, and `affine_places` those whose places count evenly, which are
views; `scatters` combine updates. Scatters that add or assign take 128 updates at a time: a product
with the matrix of equal places sums those of one place, and the last of several is stored. Those of
`ordered_scatters` are combined one after another. `sorting` sorts rows, `long_rows` those that do
not fit a partition, `largest` finds few elements, and `narrow_sorts` the sorts of which few are
read; `cumulative` has sums of rows up to each of their elements.
"""
