"""Tiles as the kernels of this folder allocate, load and copy them."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl

P = 128
BANK = 512
"""fp32 elements of a PSUM bank: the widest tile that one matmul produces."""


def chip(shape: tuple[int, ...], dtype: Any = nl.float32, buffer: Any = nl.sbuf) -> Any:
    """A tile that holds nothing yet."""
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def psum(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    return chip(shape, dtype, nl.psum)


def loaded(view: Any) -> Any:
    """A tile in SBUF with what `view` holds in HBM, by one transfer."""
    tile = chip(view.shape, view.dtype)
    nisa.dma_copy(dst=tile, src=view)
    return tile


def output(shape: tuple[int, ...], dtype: Any) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def scalar_copy(dst: Any, src: Any) -> None:
    """A copy by ScalarE, where the first generation's compiler puts copies out of PSUM (NB011,
    NB012, NB023, NB024: VectorE 0.0 %, ScalarE busy). There it is an activation."""
    nisa.activation(dst=dst, op=nl.copy, data=src)


def on_scalar(source: Any, dtype: Any = None) -> Any:
    tile = chip(source.shape, source.dtype if dtype is None else dtype)
    scalar_copy(tile, source)
    return tile


def combined(op: Any, first: Any, second: Any, dtype: Any = None) -> Any:
    """The element-wise result of two tiles, by VectorE."""
    tile = chip(first.shape, first.dtype if dtype is None else dtype)
    nisa.tensor_tensor(dst=tile, data1=first, data2=second, op=op, engine=nisa.engine.vector)
    return tile


def in_psum(row: Any, ones: Any) -> Any:
    """A row [1, n], n at most 512, in all partitions: a product with a row of ones."""
    product = psum((P, row.shape[1]))
    nisa.nc_matmul(dst=product, stationary=ones, moving=row)
    return product


def over_partitions(row: Any, ones: Any) -> Any:
    """A row [1, n] in all partitions: a product with a row of ones, copied by ScalarE. So the SDK
    describes broadcasts over partitions (nki/guides/tutorials/fused_mamba.rst)."""
    result = chip((P, row.shape[1]), row.dtype)
    for start in range(0, row.shape[1], BANK):
        part = nl.ds(start, min(BANK, row.shape[1] - start))
        scalar_copy(result[:, part], in_psum(row[:, part], ones))
    return result


def row_of_ones() -> Any:
    ones = chip((1, P))
    nisa.memset(dst=ones, value=1.0)
    return ones
