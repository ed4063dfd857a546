"""Kernels of aws-neuron/nki-samples against the current API."""

from __future__ import annotations

from matmul_cases import matmul_cases
from mx_cases import mx_cases

TUTORIALS = "src/nki_samples/tutorials"
MATMUL = f"{TUTORIALS}/matrix_multiplication/matrix_multiplication_nki_kernels.py"

CASES = (
    *matmul_cases(MATMUL),
    *mx_cases(f"{TUTORIALS}/mxfp-matmul/mx_kernels.py", packed_scales=False),
)

OTHERS = ()
LEFT_OUT: dict[tuple[str, str], str] = {}
