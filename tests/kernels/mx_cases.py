"""The microscaling kernels of the deep dive, which two repositories hold."""

from __future__ import annotations

from functools import partial

import numpy as np
from kernel_case import Case
from mx_formulas import FP4, FP8, contracted, exact, packed, scaled, scales, unpacked

import nki.language as nl

K, M, N = 128, 128, 512
X4 = {FP8: nl.float8_e5m2_x4, FP4: nl.float4_e2m1fn_x4}
STORED = {type_: stored for stored, type_ in X4.items()}


def quantised_before(dtype, random):
    stationary, moving = (packed(random, K, size, dtype)[0] for size in (M, N))
    return stationary, scales(random, K, M), moving, scales(random, K, N), X4[dtype]


def product_of_quantised(stationary, stationary_scale, moving, moving_scale, x4):
    return contracted(
        scaled(unpacked(stationary, STORED[x4]), stationary_scale),
        scaled(unpacked(moving, STORED[x4]), moving_scale),
    )


def quantised_on_the_device(dtype, random):
    stationary, _ = packed(random, K, M, dtype)
    moving = exact(random, K, 4 * N)
    return stationary, scales(random, K, M), moving, X4[dtype], nl.float8_e5m2_x4


def product_of_mixed(stationary, stationary_scale, moving, x4, _):
    rows = moving.astype(np.float64).reshape(K, N, 4)
    return contracted(scaled(unpacked(stationary, STORED[x4]), stationary_scale), rows)


def plain(copy, random):
    return exact(random, 4 * K, M), exact(random, 4 * K, N), nl.float8_e5m2_x4, copy


def plain_product(stationary, moving, *_):
    return stationary.astype(np.float64).T @ moving.astype(np.float64)


def mx_cases(path, packed_scales):
    """The cases of one file; only one of the repositories has the kernel with packed scales."""
    strided = ["kernel_copy_strided_quantize_matmul_mx"]
    if packed_scales:
        strided.append("kernel_copy_strided_quantize_matmul_mx_packed_scale")
    return (
        *(
            Case(
                path,
                "kernel_offline_quantized_mx_matmul",
                partial(quantised_before, dtype),
                product_of_quantised,
                8e-3,
                target="trn3",
                label=dtype.__name__,
            )
            for dtype in X4
        ),
        *(
            Case(
                path,
                "kernel_on_device_quantize_matmul_mx",
                partial(quantised_on_the_device, dtype),
                product_of_mixed,
                8e-3,
                target="trn3",
                label=dtype.__name__,
            )
            for dtype in X4
        ),
        *(
            Case(
                path,
                kernel,
                partial(plain, copy),
                plain_product,
                8e-3,
                target="trn3",
                label="tensor copy" if copy else "strided DMA",
            )
            for kernel in strided
            for copy in (True, False)
        ),
    )
