"""Kernels of aws-neuron-sdk: examples, deep dives, and the code blocks of its pages."""

from __future__ import annotations

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from kernel_case import Case, normal
from kernel_formulas import (
    add,
    average_pool,
    even_and_odd_columns,
    exp,
    matmul,
    max_pool,
    selective_scan,
    transposed_rows,
)
from matmul_cases import matmul_cases
from mx_cases import mx_cases

from isa.errors import NeuronError

BFLOAT16 = ml_dtypes.bfloat16
MATMUL = "nki/examples/matrix_multiplication/matrix_multiplication_nki_kernels.py"
MAMBA = "nki/examples/fused_mamba/mamba_nki_kernels.py"
POOLED = np.arange(4 * 6 * 8, dtype=np.float16).reshape(4, 6, 8)


def mamba_inputs(random):
    shape = (1, 128, 1024)
    delta, u = random.uniform(0.1, 1, shape), random.standard_normal(shape)
    a = -random.uniform(0.1, 1, (128, 4))
    b, c = random.standard_normal((2, 1, 4, 1024))
    return tuple(x.astype(np.float32) for x in (delta, u, a, b, c))


def values(*arrays):
    return lambda random: arrays


EXAMPLES = (
    Case("nki/examples/layout-pass.py", "tensor_exp_kernel_", normal((128, 512)), exp, 1e-6),
    *(
        Case(
            f"nki/examples/getting_started_{name}.py",
            "nki_tensor_add_kernel",
            normal((4, 3), (4, 3), dtype=np.float16),
            add,
            1e-3,
        )
        for name in ("baremetal", "jax", "torch")
    ),
    Case(
        "nki/examples/simulate/nki_simulate_example.py",
        "add_kernel",
        normal((128, 512), (128, 512)),
        add,
        1e-6,
    ),
    Case(
        "nki/examples/tensor_addition/tensor_addition_nki_kernels.py",
        "nki_tensor_add",
        normal((256, 1024), (256, 1024)),
        add,
        1e-6,
        target="trn1",
    ),
    Case(
        "nki/examples/index-case-1.py",
        "tensor_split_kernel_",
        normal((4, 5), dtype=BFLOAT16),
        even_and_odd_columns,
        0,
    ),
    Case("nki/examples/index-case-3.py", "tensor_maxpool_kernel_", values(POOLED, 2), max_pool, 0),
    Case(
        "nki/examples/average_pool2d/average_pool2d_nki_kernels.py",
        "tensor_avgpool_kernel",
        values(POOLED, 2),
        average_pool,
        0,
    ),
    Case(
        "nki/examples/transpose2d/transpose2d_nki_kernels.py",
        "tensor_transpose2D_kernel_",
        values(np.arange(60, dtype=np.int8).reshape(5, 12), (3, 4)),
        transposed_rows,
        0,
    ),
    *matmul_cases(MATMUL),
    *(Case(MAMBA, f"mamba_v{v}", mamba_inputs, selective_scan, 1e-5) for v in (1, 2, 3)),
)

OPTIMISED = "nki/guides/tutorials/kernel-optimization.rst"
SCHEDULED = "nki/guides/how-to-scheduling-apis.rst"
MIGRATED = "nki/migration/index.rst"
OVERVIEW = "nki/get-started/about/nki-dma-overview.rst"
LANGUAGE = "nki/get-started/nki-language-guide.rst"
QUICKSTART = "nki/get-started/quickstart-implement-run-kernel.rst"
DEBUGGED = "neuron-runtime/nrtpy/tutorial-debug-neff-nrtpy.rst"


def reciprocal_plus_one(a):
    a = a.astype(np.float64)
    return 1 / a + (a + 1)


def exp_each(*tensors):
    return tuple(map(exp, tensors))


def first_element_of_row_0(a):
    """A gather of one element of row 0 to the first column of zeros."""
    gathered = np.zeros((128, 512))
    gathered[:, 0] = a[0, 0]
    return gathered


def in_place(shape, result):
    """Inputs and expected results of a kernel that writes its second argument."""
    return lambda random: (
        random.standard_normal(shape).astype(np.float32),
        np.zeros(shape, np.float32),
    ), lambda a, _: result(a.astype(np.float64))


PAGES = (
    Case(OVERVIEW, "tensor_exp_kernel_isa", normal((4, 4096), dtype=BFLOAT16), exp, 8e-3),
    Case(OVERVIEW, "tensor_exp_kernel_isa#2", normal((128, 128), dtype=BFLOAT16), exp, 8e-3),
    Case(LANGUAGE, "nki_tensor_add_kernel", normal((128, 64), (128, 64)), add, 1e-6),
    Case(
        LANGUAGE,
        "relu_kernel",
        *in_place((256, 512), lambda a: np.maximum(a, 0)),
        0,
        returns=False,
    ),
    Case(LANGUAGE, "scale_kernel", *in_place((256, 512), lambda a: a / 2), 0, returns=False),
    Case(QUICKSTART, "nki_tensor_add_kernel#2", normal((4, 3), (4, 3)), add, 1e-6),
    Case(SCHEDULED, "kernel", normal((64, 32)), reciprocal_plus_one, 1e-6),
    *(
        Case(SCHEDULED, kernel, normal(*3 * [(64, 32)]), exp_each, 1e-6)
        for kernel in ("kernel#2", "loop", "loop#2")
    ),
    Case(OPTIMISED, "matrix_multiply_kernel", normal((96, 64), (96, 400)), matmul, 1e-5),
    *(
        Case(
            OPTIMISED,
            f"matrix_multiply_kernel#{i}",
            normal((256, 256), (256, 1024), dtype=BFLOAT16),
            matmul,
            8e-3,
        )
        for i in (2, 3, 4)
    ),
    Case(
        OPTIMISED,
        "matrix_multiply_kernel#5",
        normal((1024, 2048), (1024, 1024), dtype=BFLOAT16),
        matmul,
        8e-3,
    ),
    *(
        Case(MIGRATED, kernel, normal((8, 128, 512)), lambda a: a, 0)
        for kernel in ("sb_blocks_migrated", "sb_blocks_migrated#2", "sb_blocks_migrated_incorrect")
    ),
    Case(DEBUGGED, "fixed_dma_kernel", normal((128, 512)), first_element_of_row_0, 0),
)

ISA = "nki/api/nki/isa/__init__.py"


def rows_and_indices(count, *shape, dtype=np.float32, columns=1):
    """Rows, and indices of so many of them: [count / columns, columns]."""

    def inputs(random):
        rows = random.standard_normal(shape).astype(dtype)
        index = random.permutation(shape[0])[:count].astype(np.uint32)
        return rows, index.reshape(count // columns, columns)

    return inputs


def gathered(rows, index):
    return rows[index[:, 0]]


def scatter_inputs(random):
    rows, index = rows_and_indices(96, 96, 64)(random)
    return rows, index * 2, random.standard_normal((200, 64)).astype(np.float32)


def scattered(rows, index, output):
    output = output.copy()
    output[index[:, 0]] = rows
    return output


def gathered_transposed(rows, index):
    """Rows by the columns of the indices, the last axis first and the rows last."""
    last = rows.ndim - 1
    return rows[index.T.reshape(-1)].transpose(last, *range(1, last), 0)


def gelu_of_scaled(a):
    x = 2 * a.astype(np.float64) + 0.5
    return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


DOCSTRINGS = (
    Case(ISA, "indirect_gather_kernel", rows_and_indices(96, 200, 64), gathered, 0),
    Case(ISA, "indirect_scatter_kernel", scatter_inputs, scattered, 0),
    Case(ISA, "nc_matmul_accumulate_kernel", normal((512, 64), (512, 128)), matmul, 1e-5),
    Case(
        ISA,
        "gather_transpose_kernel",
        rows_and_indices(128, 300, 128, dtype=BFLOAT16),
        gathered_transposed,
        0,
    ),
    Case(
        ISA,
        "gather_transpose_2d_kernel",
        rows_and_indices(256, 300, 128, dtype=BFLOAT16, columns=2),
        gathered_transposed,
        0,
    ),
    Case(
        ISA,
        "gather_transpose_4d_kernel",
        rows_and_indices(256, 300, 1, 3, 64, dtype=BFLOAT16, columns=2),
        gathered_transposed,
        0,
    ),
    Case(
        ISA,
        "activate2_scale_bias_kernel",
        normal((128, 64)),
        gelu_of_scaled,
        1e-5,
        target="trn3",
    ),
)

MX = mx_cases("nki/deep-dives/src/mxfp-matmul/mx_kernels.py", packed_scales=True)
CASES = (*EXAMPLES, *MX, *PAGES, *DOCSTRINGS)
SIMULATOR = "nki/guides/nki_simulator.rst"
ALLOCATOR = "nki/library/kernel-utils/allocator.rst"


@dataclass(frozen=True)
class Refusal:
    """A kernel that shows what does not work: the error on arrays of these shapes."""

    path: str
    kernel: str
    shapes: tuple[tuple[int, ...], ...]
    message: str
    error: type[Exception] = NeuronError

    def __str__(self) -> str:
        return f"{self.path}:{self.kernel}"


BLOCKS = "nl.par_dim is not part of this API.*list of tiles"

REFUSALS = (
    Refusal(
        "nki/examples/layout-violation.py",
        "tensor_exp_kernel_",
        ((256, 512),),
        "partition-limit.*256 partitions",
    ),
    Refusal(SIMULATOR, "bad_kernel", ((1, 1),), "partition-limit.*256 partitions"),
    Refusal(DEBUGGED, "oob_dma_kernel", ((128, 512),), "99999; the tensor has rows 0 to 127"),
    Refusal(MIGRATED, "exp_func", ((4, 8, 128, 2, 512),), BLOCKS, AttributeError),
    Refusal(MIGRATED, "sb_blocks", ((8, 128, 512),), BLOCKS, AttributeError),
    Refusal(MIGRATED, "sb_blocks#2", ((8, 128, 512),), BLOCKS, AttributeError),
)


@dataclass(frozen=True)
class Other:
    """A kernel with a test of its own."""

    path: str
    kernel: str


OTHERS = (*REFUSALS, Other(ALLOCATOR, "kernel_without_sbm"), Other(ALLOCATOR, "kernel_with_sbm"))

_STUB = "no body"
_ON_CHIP = "a fragment: its arguments are in SBUF and it writes nothing"
TENSOR_VIEW = "nki/library/kernel-utils/tensor-view.rst"

LEFT_OUT = {
    ("nki/examples/layout-dynamic-loop.py", "tensor_exp_kernel_"): "does not parse",
    ("nki/examples/layout-loop.py", "tensor_exp_kernel_"): "decorator of torch_neuronx, and `i_f` "
    "is not defined",
    ("nki/deep-dives/nki-compiler.rst", "kernel"): _STUB,
    ("nki/get-started/about/index.rst", "my_kernel"): _STUB,
    ("nki/get-started/about/index.rst", "my_function"): "`output` is not defined",
    (LANGUAGE, "example_kernel"): "writes nothing",
    (LANGUAGE, "kernel"): _STUB,
    (LANGUAGE, "kernel#2"): "`my_relu` is not defined",
    (QUICKSTART, "nki_tensor_add_kernel"): _STUB,
    (SIMULATOR, "my_kernel"): "stops in the debugger",
    (SIMULATOR, "my_kernel#2"): "writes nothing",
    (ALLOCATOR, "kernel_multibuffer"): "writes nothing",
    **{
        (TENSOR_VIEW, kernel): _ON_CHIP
        for kernel in (
            "kernel_reshape_permute",
            "kernel_strided_slice",
            "kernel_broadcast",
            "kernel_rearrange",
            "attention_reshape",
        )
    },
    (MIGRATED, "kernel"): _STUB,
    **{(MIGRATED, f"my_kernel{i}"): _STUB for i in ("", "#2", "#3", "#4", "#5", "#6")},
}
