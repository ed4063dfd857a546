"""Traced kernels after every pass: the verifier accepts them, and text keeps all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import spine_kernels as kernels
from ir_comparison import difference
from reference_run import run_reference
from tile_ir.parser import parse_kernel
from tile_ir.verify import verify

import nki
import nki.language as nl
from isa.binding import bind
from isa.enums import SEQUENCERS
from nki.ir.nodes import TracedKernel
from nki.ir.text import print_kernel
from nki.pipeline import compile_kernel, optimise, stage_text
from simulator.execute import run

_M = nki.symbol("M", multiple_of=128, max=8192)
_N = nki.symbol("N", max=8192)


def _spec(*shape: Any, dtype: str = nl.float32) -> Any:
    return nki.TensorSpec(shape, dtype)


KERNELS: dict[str, tuple[Any, list[Any], dict[str, int]]] = {
    "softmax": (kernels.softmax, [_spec(300, 200)], {}),
    "rmsnorm": (kernels.rmsnorm, [_spec(256, 64), _spec(1, 64)], {}),
    "scaled_rows": (kernels.scaled_rows, [_spec(_M, 96)], {"M": 640}),
    "remainder": (kernels.scaled_rows_remainder, [_spec(_N, 96)], {"N": 333}),
    "matmul": (kernels.symbolic_matmul, [_spec(_M, 64), _spec(_M, 96)], {"M": 384}),
    "dynamic": (kernels.dynamic_rows, [_spec(64, 48), _spec(1, 2, dtype=nl.int32)], {}),
    "while": (kernels.halve_until_small, [_spec(128, 32), _spec(1, 1, dtype=nl.int32)], {}),
    "exchange": (kernels.exchange_halves[2], [_spec(64, 40)], {}),
    "addresses": (kernels.shared_bytes, [_spec(128, 64), _spec(128, 64)], {}),
    "gather": (
        kernels.gather_scatter,
        [_spec(100, 24), _spec(37, 1, dtype=nl.int32), _spec(37, 1, dtype=nl.int32)],
        {},
    ),
}


def _trace(name: str) -> TracedKernel:
    kernel, specs, _ = KERNELS[name]
    return kernel.trace(*specs, target="trn2")


def _inputs(kernel: TracedKernel, binding: dict[str, int]) -> list[Any]:
    rng = np.random.default_rng(5)
    inputs = []
    for tensor in kernel.parameters:
        shape = [n if type(n) is int else binding[str(n)] for n in tensor.shape]
        if tensor.dtype == nl.int32:
            inputs.append(rng.permutation(37)[: np.prod(shape)].reshape(shape).astype(np.int32))
        else:
            inputs.append(rng.standard_normal(shape).astype(np.float32))
    return inputs


@pytest.mark.parametrize("name", KERNELS)
def test_every_stage_is_legal_and_survives_text(name: str) -> None:
    stages = []

    def observe(stage: str, kernel: TracedKernel) -> None:
        verify(kernel)
        text = print_kernel(kernel)
        copy = parse_kernel(text)
        assert difference(kernel, copy) is None
        verify(copy)
        assert print_kernel(copy) == text
        stages.append(stage)

    optimise(_trace(name), observe)
    assert stages[0] == "trace" and len(stages) > 2


@pytest.mark.parametrize("name", KERNELS)
def test_text_runs_as_the_kernel_does_in_every_stage(name: str) -> None:
    binding = KERNELS[name][2]
    traced = _trace(name)
    inputs = _inputs(traced, binding)
    parsed = parse_kernel(print_kernel(traced))
    expected = run(bind(compile_kernel(parsed), binding), inputs).outputs

    def observe(stage: str, kernel: TracedKernel) -> None:
        results = run_reference(kernel, inputs, binding).outputs
        assert len(results) == len(expected)
        for one, other in zip(results, expected):
            np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8), err_msg=stage)

    optimise(traced, observe)


@pytest.mark.parametrize("name", ["softmax", "rmsnorm", "exchange"])
def test_the_schedule_lists_the_instructions_of_the_program(name: str) -> None:
    """Engine by engine, in the order in which the program runs them."""
    kernel = _trace(name)
    listed: list[tuple[str, str]] = []
    for line in stage_text(kernel, "schedule").splitlines():
        if not line.startswith(" "):
            engine, instruction, *_ = line.split()
            listed.append((engine, instruction))
    program = compile_kernel(kernel)
    for engine in SEQUENCERS:
        streams = [core.streams[engine] for core in program.cores]
        expected = [i.row.name for stream in streams for i in stream]
        ours = [row for owner, row in listed if owner == engine.name]
        assert ours == [row for row in expected if row not in ("Halt", "StorageBegin")]
    assert "# line " in stage_text(kernel, "schedule")
    assert " on " in stage_text(_trace("dynamic"), "schedule")
