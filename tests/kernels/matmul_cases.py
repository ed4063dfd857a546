"""The matrix multiplications that several repositories have a copy of."""

from __future__ import annotations

import ml_dtypes
from kernel_case import Case, normal
from kernel_formulas import matmul

BFLOAT16 = ml_dtypes.bfloat16


def matmul_cases(path: str) -> tuple[Case, ...]:
    """The cases of one file."""
    return (
        Case(path, "nki_matmul_basic_", normal((128, 64), (128, 512)), matmul, 1e-5),
        *(
            Case(path, kernel, normal((256, 256), (256, 1024), dtype=BFLOAT16), matmul, 8e-3)
            for kernel in (
                "nki_matmul_tiled_",
                "nki_matmul_hoist_load_",
                "nki_matmul_block_free_dimension_",
            )
        ),
        Case(
            path,
            "nki_matmul_fully_optimized_",
            normal((1024, 2048), (1024, 1024), dtype=BFLOAT16),
            matmul,
            8e-3,
        ),
    )
