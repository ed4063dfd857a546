"""Bodies without control flow: the same program from columns as instruction by instruction."""

import numpy as np
import pytest
import spine_kernels as kernels
from matmul_kernels import LADDER

import nki
import nki.isa as nisa
import nki.language as nl
from isa.files.encoding import encode
from isa.files.stream import in_columns


@nki.jit
def operands_of_all_kinds(a):
    """Numbers and tensors in one field, strides, tiles as another type."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    narrow = tile.view(nl.bfloat16)
    for number, operand in enumerate((1.0, tile[:, 3:4], 0.0, -0.0, 0, tile[:, 5:6], 1.0)):
        low, high = nl.ds(8 * number, 8), nl.ds(64 + 8 * number, 8)
        nisa.tensor_scalar(dst=narrow[:, low], data=narrow[:, high], op0=nl.add, operand0=operand)
        nisa.tensor_scalar(dst=tile[:, ::2], data=tile[:, 1::2], op0=nl.add, operand0=operand)
    nisa.iota(dst=tile.view(nl.int32), pattern=[[1, 64]], offset=2, channel_multiplier=1)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def place_from_a_register(a):
    out = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((1, 64), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a[0:1, :])
    row = nisa.register_alloc(3)
    place = out.ap(pattern=[[64, 1], [1, 64]], scalar_offset=row, indirect_dim=0)
    nisa.dma_copy(dst=place, src=tile)
    return out


@nki.jit
def pattern_from_a_register():
    out = nl.ndarray((128, 64), dtype=nl.int32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 64), dtype=nl.int32, buffer=nl.sbuf)
    nisa.iota(dst=tile, pattern=[[1, 64]], offset=nisa.register_alloc(3), channel_multiplier=1)
    nisa.dma_copy(dst=out, src=tile)
    return out


TILE, INDICES = np.zeros((128, 64), np.float32), np.zeros((128, 1), np.int32)
MATRICES = nki.TensorSpec((512, 512), nl.bfloat16), nki.TensorSpec((512, 1024), nl.bfloat16)
CASES = {
    **{kernel.__name__: (kernel, *MATRICES) for kernel in LADDER},
    "softmax": (kernels.softmax, np.zeros((300, 96), np.float32)),
    "gather_scatter": (kernels.gather_scatter, TILE, INDICES, INDICES),
    "shared_bytes": (kernels.shared_bytes, TILE, TILE),
    "kinds": (operands_of_all_kinds, TILE),
    "place": (place_from_a_register, TILE),
    "pattern": (pattern_from_a_register,),
}


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("name", CASES)
def test_columns_are_those_of_the_instructions(name, target):
    kernel, *arguments = CASES[name]
    program = nki.compile(kernel, *arguments, target=target).program
    for core in program.cores:
        for stream in core.streams.values():
            written = in_columns(stream)
            assert _content(written) == _content(in_columns(list(stream)))


def _content(columns):
    templates, semaphores, order, numbers = columns
    rows = [rows.tolist() for rows in numbers]
    return list(map(encode, templates)), semaphores, order.tolist(), rows
