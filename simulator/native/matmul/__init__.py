"""Micro-kernels of the tensor engine: products, transpositions, scaled formats.

`plans` has the rows' plans. Loading a tile makes its image, in the order in which inner loops read
it (`gemm_image`). `gemm` multiplies by it, by matrix registers where there are some (`gemm_tiles`),
and packs the moving tile (`packed_strips`: packed ones that are kept). `transpose_stationary` and
`transpose_moving` transpose, `microscaled` quantises and multiplies MX formats.
"""
