"""Kernels of aws-neuron/nki-samples against the current API."""

from __future__ import annotations

import ml_dtypes
from kernel_case import Case, normal
from kernel_formulas import matmul
from mx_cases import mx_cases

TUTORIALS = "src/nki_samples/tutorials"
MATMUL = f"{TUTORIALS}/matrix_multiplication/matrix_multiplication_nki_kernels.py"
BFLOAT16 = ml_dtypes.bfloat16

CASES = (
    Case(MATMUL, "nki_matmul_basic_", normal((128, 64), (128, 512)), matmul, 1e-5),
    *(
        Case(MATMUL, kernel, normal((256, 256), (256, 1024), dtype=BFLOAT16), matmul, 8e-3)
        for kernel in (
            "nki_matmul_tiled_",
            "nki_matmul_hoist_load_",
            "nki_matmul_block_free_dimension_",
        )
    ),
    Case(
        MATMUL,
        "nki_matmul_fully_optimized_",
        normal((1024, 2048), (1024, 1024), dtype=BFLOAT16),
        matmul,
        8e-3,
    ),
    *mx_cases(f"{TUTORIALS}/mxfp-matmul/mx_kernels.py", packed_scales=False),
)

OTHERS = ()
LEFT_OUT: dict[tuple[str, str], str] = {}
