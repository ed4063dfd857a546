"""Products of matrices, and convolutions, on the tensor engine.

The operands of a `product` have the depth along partitions (`sides`). It is folded (`depths`), with
k = partition * tiles + tile, so that row-major operands are loaded in long runs: in more tiles
where rows are short, on either half of the partitions where they leave some idle (`depth_runs`,
`array_halves`).
Where tiles on chip have it in order it stays so. Element-wise work on one operand alone is done
where it is loaded (`computed_operands`). Blocks of columns are as wide as long runs need, and the
depth is loaded part by part, so that sums begin with the first one. Tiles of rows take rows by
turns (`cut`, `left_operands`), so that several tiles are moved at once. What has its rows or
columns along partitions is turned (`transposes`, `turned_columns`).

A convolution (`convolution`, `images`, `bands`) loads bands of its image (`loaded_bands`) with
features along partitions, and its kernel (`weights`), and multiplies shifted views of the bands, by
the fastest plan (`image_plans`). Features that fill partitions badly are there for several places
of the window at once. Pixels or outputs lie along partitions of the result, whichever costs less.
Where outputs are few, several columns of results are one product, or tiles of pixels are multiplied
beside one another in columns of the array of their own. Of images with few features partitions have
rows (`strips`), and where windows lie side by side all rows of theirs (`patches`): so do products
of images that are cut into patches (`patch_products`).
Of outputs in groups of few features blocks of groups lie along partitions (`grouped`).
Element-wise work behind a convolution takes its results on chip (`results`). Plans that multiply
pixels by zeros are computed again without, where pixels are not finite (`finite`).
"""
