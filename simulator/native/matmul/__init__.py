"""Micro-kernels of the tensor engine: images of tiles, products, transpositions, scaled formats."""
