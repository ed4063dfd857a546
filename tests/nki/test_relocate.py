"""Cores that run one source are compiled once, as they are core by core."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.files.text import disassemble
from nki import pipeline
from nki.passes.place.roots import ResolveRoots
from nki.passes.relocate import bases_of
from nki.pipeline import compile_kernel

ROWS, WIDE = 1024, 64
A = nki.TensorSpec((ROWS, WIDE), nl.float32)


def tile(a, out, first, factor=1.0):
    """Loads, computes and stores a tile."""
    x, y = (nl.ndarray((128, WIDE), dtype=a.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(dst=x, src=a[nl.ds(first, 128), :])
    nisa.activation(dst=y, op=nl.square, data=x)
    nisa.tensor_scalar(dst=x, data=y, op0=nl.multiply, operand0=factor)
    nisa.dma_copy(dst=out[nl.ds(first, 128), :], src=x)


def halves(a, out, factor):
    for number in range(4):
        tile(a, out, nl.program_id(0) * 512 + number * 128, factor)


def in_loops(a, out, factor):
    """Loops of unlike bounds, long enough that they stay loops."""
    first = nl.program_id(0) * 512
    nl.fori_loop(first, first + 512, lambda row: tile(a, out, row, factor), 128)
    for start in (0, 256):
        nl.fori_loop(first + start, first + start + 256, lambda row: tile(a, out, row), 128)


def the_same(a, out, factor):
    """Both cores store everything."""
    for number in range(8):
        tile(a, out, number * 128, factor)


def through_memory(a, out, factor):
    """Each core has a tensor in HBM of its own, and one of both, behind a barrier."""
    core = nl.program_id(0)
    own = nl.ndarray((512, WIDE), dtype=a.dtype, buffer=nl.private_hbm)
    both = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for number in range(4):
        x = nl.ndarray((128, WIDE), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=a[nl.ds(core * 512 + number * 128, 128), :])
        nisa.dma_copy(dst=own[nl.ds(number * 128, 128), :], src=x)
    for number in range(4):
        nisa.dma_copy(
            dst=both[nl.ds(core * 512 + number * 128, 128), :],
            src=own[nl.ds(number * 128, 128), :],
        )
    nisa.core_barrier(both, (0, 1))
    halves(both, out, factor)


@nki.jit
def kernel(a, body, factor):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    body(a, out, factor)
    return out


def lowered_cores(traced, monkeypatch):
    """The program, and the bodies that the stages behind the passes saw."""
    seen = []
    whole = pipeline.lower
    with monkeypatch.context() as patch:
        patch.setattr(
            pipeline, "lower", lambda k, *rest: seen.append(len(k.bodies)) or whole(k, *rest)
        )
        return compile_kernel(traced), seen


@pytest.mark.parametrize("body", [halves, the_same, through_memory])
def test_programs_are_those_of_cores_on_their_own(body, monkeypatch):
    traced = kernel[2].trace(A, body, 2.0, target="trn2")
    program, seen = lowered_cores(traced, monkeypatch)
    assert seen == [1]
    assert disassemble(program) == disassemble(compile_kernel(traced, lambda *_: None))


@pytest.mark.parametrize("body", [halves, in_loops, the_same, through_memory])
def test_results_are_numpys(body, monkeypatch):
    a = np.random.default_rng(0).standard_normal((ROWS, WIDE)).astype(np.float32)
    traced = kernel[2].trace(A, body, 2.0, target="trn2")
    assert lowered_cores(traced, monkeypatch)[1] == [1]
    expected = np.square(a) * np.float32(1.0 if body is in_loops else 2.0)
    found = nki.compile(kernel[2], a=A, body=body, factor=2.0, target="trn2")(a)
    np.testing.assert_array_equal(found, expected)


def unlike_factor(a, out, factor):
    for number in range(4):
        first = nl.program_id(0) * 512 + number * 128
        tile(a, out, first, factor + nl.program_id(0))


def unlike_distance(a, out, factor):
    """The second core goes through its rows backwards."""
    for number in range(4):
        at = 3 - number if nl.program_id(0) else number
        tile(a, out, nl.program_id(0) * 512 + at * 128, factor)


def unlike_count(a, out, factor):
    for number in range(4 + nl.program_id(0)):
        tile(a, out, number * 128, factor)


def unlike_place(a, out, factor):
    """The second core computes in another part of its tile."""
    x = nl.ndarray((128, 2 * WIDE), dtype=a.dtype, buffer=nl.sbuf)
    part = x[:, nl.ds(nl.program_id(0) * WIDE, WIDE)]
    first = nl.program_id(0) * 512
    nisa.dma_copy(dst=part, src=a[nl.ds(first, 128), :])
    nisa.dma_copy(dst=out[nl.ds(first, 128), :], src=part)


def unlike_register(a, out, factor):
    """What a loop counts is more than a part of offsets."""
    first = nl.program_id(0) * 512

    def body(row):
        register = nisa.register_alloc(0)
        nisa.register_move(register, row)
        tile(a, out, register, factor)

    nl.fori_loop(first, first + 512, body, 128)


def shifted_condition(a, out, factor):
    """The second core's loop begins where the first one's has ended, and sums begin anew there."""
    ones = nl.ndarray((128, 128), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    total = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
    first = nl.program_id(0) * 4

    def body(number):
        nisa.nc_matmul(dst=total, stationary=ones, moving=ones)

    nl.fori_loop(first, first + 4, body, 1)
    tile = nl.ndarray((128, 128), dtype=a.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=total)
    for part in range(4):
        place = nl.ds(nl.program_id(0) * 512 + part * 128, 128)
        nisa.dma_copy(dst=out[place, :], src=tile[:, :WIDE])


def test_conditions_of_loops_are_compared_by_what_they_mean():
    a = np.zeros((ROWS, WIDE), np.float32)
    compiled = nki.compile(kernel[2], a=A, body=shifted_condition, factor=1.0, target="trn2")
    np.testing.assert_array_equal(compiled(a), np.full((ROWS, WIDE), 4 * 128.0))


@pytest.mark.parametrize(
    "body", [unlike_factor, unlike_distance, unlike_count, unlike_place, unlike_register]
)
def test_other_cores_are_compiled_themselves(body, monkeypatch):
    traced = kernel[2].trace(A, body, 2.0, target="trn2")
    assert bases_of(ResolveRoots().run(traced)) is None
    program, seen = lowered_cores(traced, monkeypatch)
    assert seen == [2]
    assert disassemble(program) == disassemble(compile_kernel(traced, lambda *_: None))
