"""Arenas of HBM: kernels with and without them give the same bits, and live tensors never meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_run import run_reference
from tile_ir.parser import parse_kernel
from tile_ir.verify import verify

import nki
import nki.isa as nisa
import nki.language as nl
from graph_compiler.storage.arena import ShareArenas, local_bytes
from isa.dtypes import DTYPES
from isa.errors import NeuronError
from nki.ir import Loop, TracedKernel
from nki.ir.nodes import operations, storages
from nki.ir.text import print_kernel
from nki.pipeline import compile_kernel
from simulator.execute import run
from simulator.races.happens_before import check

A = np.random.default_rng(5).standard_normal((16, 32)).astype(np.float32)


def shared(kernel: TracedKernel) -> TracedKernel:
    """The kernel with arenas, which is legal and survives printing."""
    moved = ShareArenas().run(kernel)
    verify(moved)
    assert print_kernel(parse_kernel(print_kernel(moved))) == print_kernel(moved)
    return moved


def device(kernel: TracedKernel, *inputs: Any) -> list[Any]:
    program = compile_kernel(kernel)
    assert check(program) == []
    return run(program, list(inputs)).outputs


def assert_equal(kernel: TracedKernel, *inputs: Any) -> list[Any]:
    """The outputs, which are the same bits without arenas, with them, and in the author's order."""
    plain, moved = kernel, shared(kernel)
    expected = device(plain, *inputs)
    for found in (device(moved, *inputs), run_reference(moved, list(inputs)).outputs):
        assert [a.tobytes() for a in found] == [a.tobytes() for a in expected]
    return expected


def traced(function: Any, *shapes: Any, cores: int = 1) -> TracedKernel:
    specs = [nki.TensorSpec(shape, nl.float32) for shape in shapes]
    jitted = nki.jit(function)
    kernel: TracedKernel = (jitted[cores] if cores > 1 else jitted).trace(*specs, target="trn2")
    return kernel


def stages(a: Any) -> Any:
    """Five scratch tensors, one behind the other."""
    value = a
    for _ in range(5):
        scratch = nl.ndarray(a.shape, a.dtype, buffer=nl.private_hbm)
        nl.store(scratch, nl.add(nl.load(value), 1.0))
        value = scratch
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(value))
    return out


def test_tensors_behind_each_other_take_turns() -> None:
    kernel = traced(stages, A.shape)
    (out,) = assert_equal(kernel, A)
    np.testing.assert_array_equal(out, A + 1 + 1 + 1 + 1 + 1)
    assert local_bytes(kernel) == 5 * A.nbytes
    assert local_bytes(shared(kernel)) == A.nbytes


def test_a_loop_is_one_life() -> None:
    """What a loop uses lives in all its rounds: the sum of the rounds before is still there."""

    def kernel(a: Any) -> Any:
        total = nl.ndarray(a.shape, a.dtype, buffer=nl.private_hbm)
        nl.store(total, nl.load(a))
        for _ in nl.dynamic_range(3):
            twice = nl.ndarray(a.shape, a.dtype, buffer=nl.private_hbm)
            nl.store(twice, nl.multiply(nl.load(total), 2.0))
            nl.store(total, nl.add(nl.load(twice), 1.0))
        behind = nl.ndarray(a.shape, a.dtype, buffer=nl.private_hbm)
        nl.store(behind, nl.load(total))
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(behind))
        return out

    traced_kernel = traced(kernel, A.shape)
    assert any(isinstance(node, Loop) for node in traced_kernel.bodies[0])
    (out,) = assert_equal(traced_kernel, A)
    np.testing.assert_array_equal(out, ((A * 2 + 1) * 2 + 1) * 2 + 1)
    assert local_bytes(traced_kernel) == 3 * A.nbytes
    assert local_bytes(shared(traced_kernel)) == 2 * A.nbytes


def test_what_a_tensor_takes_over_is_not_initialised() -> None:
    """Half of the last scratch tensor is never written, though an earlier one wrote its bytes."""

    def kernel(a: Any) -> Any:
        first = nl.ndarray(a.shape, a.dtype, buffer=nl.private_hbm)
        nl.store(first, nl.load(a))
        second = nl.ndarray(a.shape, a.dtype, buffer=nl.private_hbm)
        nl.store(second, nl.load(first))
        third = nl.ndarray(a.shape, a.dtype, buffer=nl.private_hbm)
        nl.store(third[0:8], nl.load(second[0:8]))
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(third))
        return out

    plain = traced(kernel, A.shape)
    assert local_bytes(shared(plain)) == A.nbytes
    messages = []
    for each in (plain, shared(plain)):
        for run_it in (lambda k: device(k, A), lambda k: run_reference(k, [A])):
            with pytest.raises(NeuronError, match="256 of its 512 elements depend") as error:
                run_it(each)
            messages.append(error.value.what)
    assert len(set(messages)) == 1


def test_cores_share_no_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    """What both cores use stays by itself, what one of them uses goes to an arena of its own."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")

    def kernel(a: Any) -> Any:
        core = nl.program_id(0)
        both = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        rows = slice(8, 16) if core else slice(0, 8)
        value = a[rows]
        for _ in range(3):
            own = nl.ndarray(value.shape, a.dtype, buffer=nl.private_hbm)
            nl.store(own, nl.add(nl.load(value), 1.0))
            value = own
        nl.store(both[rows], nl.load(value))
        nisa.core_barrier(both, (0, 1))
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        nl.store(out[rows], nl.load(both[slice(0, 8) if core else slice(8, 16)]))
        return out

    plain = traced(kernel, A.shape, cores=2)
    (out,) = assert_equal(plain, A)
    np.testing.assert_array_equal(out, np.concatenate([A[8:], A[:8]]) + 1 + 1 + 1)
    arenas = [t for t in shared(plain).tensors if t.divided]
    assert [t.core for t in arenas] == [0, 1]
    assert local_bytes(plain) - local_bytes(shared(plain)) == 2 * A.nbytes


def test_tensors_that_nothing_uses_are_left_out() -> None:
    def kernel(a: Any) -> Any:
        nl.ndarray((64, 64), a.dtype, buffer=nl.private_hbm)
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(a))
        return out

    plain = traced(kernel, A.shape)
    assert_equal(plain, A)
    assert (local_bytes(plain), local_bytes(shared(plain))) == (64 * 64 * 4, 0)


def test_tensors_that_begin_in_loops_or_lie_where_registers_say_stay() -> None:
    """Rotation copies the first; the second would have each access meet all of the arena."""

    def kernel(a: Any, row: Any) -> Any:
        both = nl.ndarray(a.shape, a.dtype, buffer=nl.private_hbm)
        nl.store(both, nl.load(a))
        register = nisa.register_alloc(nl.load(row))
        tile = nl.ndarray((1, 32), a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=both.ap([[32, 1], [1, 32]], 0, scalar_offset=register))
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        for i in nl.dynamic_range(16):
            own = nl.ndarray((1, 32), a.dtype, buffer=nl.private_hbm)
            nl.store(own, nl.add(nl.load(a[nl.ds(i, 1)]), tile))
            nl.store(out[nl.ds(i, 1)], nl.load(own))
        for _ in range(2):
            behind = nl.ndarray((1, 32), a.dtype, buffer=nl.private_hbm)
            nl.store(behind, tile)
            nl.store(out[0:1], nl.add(nl.load(out[0:1]), nl.load(behind)))
        return out

    traced_kernel = nki.jit(kernel).trace(
        nki.TensorSpec(A.shape, nl.float32), nki.TensorSpec((1, 1), nl.int32), target="trn2"
    )
    (out,) = assert_equal(traced_kernel, A, np.array([[2]], np.int32))
    np.testing.assert_array_equal(out[1:], A[1:] + A[2])
    scratch = [t for t in shared(traced_kernel).tensors if t.role == "local" and not t.divided]
    within = {t.name for t in scratch if t.within}
    assert within == {"behind", "behind.1"} and {t.name for t in scratch} - within >= {
        "both",
        "own",
    }


@st.composite
def chains(draw: Any) -> Any:
    """Scratch tensors of different sizes, each the sum of the corners of two earlier values."""
    steps = []
    for number in range(draw(st.integers(2, 8))):
        shape = draw(st.sampled_from([(4, 8), (8, 8), (16, 32), (2, 4), (16, 8)]))
        early = draw(st.integers(max(0, number - 3), number))
        steps.append((shape, early, draw(st.integers(max(0, number - 2), number))))
    return steps


@settings(max_examples=12, deadline=None)
@given(chains())
def test_random_chains(steps: Any) -> None:
    def kernel(a: Any) -> Any:
        values = [a]
        for shape, *sources in steps:
            scratch = nl.ndarray(shape, a.dtype, buffer=nl.private_hbm)
            tile = nl.load(a[0 : shape[0], 0 : shape[1]])
            for source in sources:
                rows, columns = (min(pair) for pair in zip(shape, values[source].shape))
                corner = nl.load(values[source][0:rows, 0:columns])
                tile[0:rows, 0:columns] = nl.add(tile[0:rows, 0:columns], corner)
            nl.store(scratch, tile)
            values.append(scratch)
        out = nl.ndarray(values[-1].shape, a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(values[-1]))
        return out

    plain = traced(kernel, A.shape)
    moved = shared(plain)
    (out,) = assert_equal(plain, A)
    values = [A]
    for shape, *sources in steps:
        tile = A[: shape[0], : shape[1]].copy()
        for source in sources:
            rows, columns = (min(pair) for pair in zip(shape, values[source].shape))
            tile[:rows, :columns] += values[source][:rows, :columns]
        values.append(tile)
    np.testing.assert_array_equal(out, values[-1])
    assert local_bytes(moved) <= local_bytes(plain) + 64 * len(steps)
    assert_no_live_tensors_meet(moved)


def assert_no_live_tensors_meet(kernel: TracedKernel) -> None:
    owner: dict[int, Any] = {}
    (body,) = kernel.bodies
    last = {t: at for at, op in enumerate(operations(body)) for t in storages(op.values)}
    for at, op in enumerate(operations(body)):
        for tensor in storages(op.values):
            if tensor.within is None:
                continue
            size = int(np.prod(tensor.shape)) * DTYPES[tensor.dtype].size
            for byte in range(tensor.offset, tensor.offset + size):
                other = owner.get(byte, tensor)
                assert other is tensor or last[other] < at
                owner[byte] = tensor
