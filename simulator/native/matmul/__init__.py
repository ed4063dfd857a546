"""Micro-kernels of the tensor engine: products, transpositions, scaled formats.

`plans` has the rows' plans, `blocks` the blocks of results of a CPU. Loading a tile makes its image
(`gemm_image`), in the order in which inner loops read it (`image_layout`). `gemm` multiplies by it,
by matrix registers where there are some (`gemm_tiles`) or by FMA of `wide_panels`. It packs the
moving tile (`packed_strips`: packed ones that are kept), of which `gemm_hints` announces the next.
`transpose_stationary` and `transpose_moving` transpose, `microscaled` quantises and multiplies MX
formats.
"""
