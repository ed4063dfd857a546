"""Kernels of the examples of nkipy."""

from __future__ import annotations

import numpy as np
from kernel_case import Case, normal
from kernel_formulas import add, rms_norm

MODELS = "examples/models"
TESTS = "tests/unit/test_nki.py"


def rows_and_weight(random):
    x, weight = random.standard_normal((200, 512)), random.uniform(0.5, 1.5, 512)
    return x.astype(np.float32), weight.astype(np.float32), 1e-6


CASES = (
    *(
        Case(f"{MODELS}/{path}", "nki_rmsnorm_kernel", rows_and_weight, rms_norm, 1e-5)
        for path in ("gpt_oss/kernels/nki/rmsnorm.py", "qwen3/kernels/sampling.py")
    ),
    Case(
        "examples/playground/simple_nki_kernel.py",
        "nki_tensor_add",
        normal((128, 512), (128, 512)),
        add,
        1e-6,
    ),
)

OTHERS = ()
LEFT_OUT = {
    (TESTS, f"{kernel}{ordinal}"): "inside a test of nkipy, which needs the vendor's compiler"
    for kernel, ordinals in (
        ("nki_add_kernel", ("", "#2", "#3", "#4", "#5", "#6", "#7")),
        ("nki_inplace_add_kernel", ("", "#2")),
    )
    for ordinal in ordinals
}
