"""The allocations of a program: in columns the same as one by one."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import spine_kernels as kernels
from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_kernels import LADDER

import nki
import nki.isa as nisa
import nki.language as nl
from isa.dtypes import DTYPES
from isa.files.container import read, write
from isa.operations.control import StorageBegin
from isa.program import OnChipAllocation
from nki.ir.nodes import operations
from nki.pipeline import compile_kernel, optimise

TILE = np.zeros((128, 64), np.float32)
MATRICES = nki.TensorSpec((512, 512), nl.bfloat16), nki.TensorSpec((512, 1024), nl.bfloat16)
CASES = {
    **{kernel.__name__: (kernel, *MATRICES) for kernel in LADDER},
    "softmax": (kernels.softmax, np.zeros((300, 96), np.float32)),
    "shared_bytes": (kernels.shared_bytes, TILE, TILE),
    "dynamic_rows": (kernels.dynamic_rows, TILE, np.zeros((1, 2), np.int32)),
    "two_cores": (kernels.exchange_halves[2], TILE),
}


def compared(kernel, *arguments):
    """The allocations of all cores, which are those of the optimised kernel and in a container,
    and the source map."""
    traced = kernel.trace(*arguments, target="trn2")
    program = compile_kernel(traced)
    optimised = optimise(traced)
    read_again = read(write(program))
    for core, loaded, body in zip(program.cores, read_again.cores, optimised.bodies, strict=True):
        found = list(core.storages)
        assert [replace(record, location=0) for record in found] == [
            one_record(op.values[0].storage, optimised.placement)
            for op in operations(body)
            if op.row is StorageBegin and op.values[0].storage in optimised.placement
        ]
        assert loaded.storages == found
    return [record for core in program.cores for record in core.storages], program.locations


def one_record(tensor, placement):
    """The allocation of a tensor, without its line."""
    return OnChipAllocation(
        tensor.name,
        tensor.memory.value,
        tensor.dtype,
        tensor.shape,
        placement[tensor][0],
        tensor.shape[0],
        placement[tensor][1],
        tensor.pitch * DTYPES[tensor.dtype].size,
        0,
    )


@pytest.mark.parametrize("name", CASES)
def test_allocations_are_those_of_the_tensors(name):
    compared(*CASES[name])


SHAPES = st.sampled_from([(128, 8), (64, 2, 4), (1, 8)])
TILES = st.tuples(
    st.booleans(),
    st.sampled_from(["", "", "sum", "t1", "t"]),
    SHAPES,
    st.sampled_from([nl.float32, nl.bfloat16]),
    st.sampled_from([nl.sbuf, nl.psum]),
)


@settings(deadline=None, max_examples=25)
@given(st.lists(TILES, min_size=1, max_size=8))
def test_names_and_lines_of_allocations(tiles):
    @nki.jit
    def kernel():
        for other_line, name, shape, dtype, memory in tiles:
            if other_line:
                here = nl.ndarray(shape, dtype=dtype, buffer=memory, name=name)
                nisa.memset(dst=here, value=0.0)
            else:
                there = nl.ndarray(shape, dtype=dtype, buffer=memory, name=name)
                nisa.memset(dst=there, value=1.0)

    records, locations = compared(kernel)
    labels = [name or ("here" if other_line else "there") for other_line, name, *_ in tiles]
    before = Counter()
    for record, label, (other_line, _, shape, dtype, memory) in zip(
        records, labels, tiles, strict=True
    ):
        assert record.name == (f"{label}.{before[label]}" if before[label] else label)
        before[label] += 1
        assert (record.shape, record.dtype, record.memory) == (shape, dtype, memory.value)
        assert locations[record.location].text.strip().startswith("here" if other_line else "there")
