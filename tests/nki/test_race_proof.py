"""Compiling proves the absence of races, for sizes that exercise every loop."""

import dataclasses

import numpy as np
import pytest
import spine_kernels as kernels
from test_bad_input import swaps_without_barrier

import nki
import nki.isa as nisa
import nki.language as nl
from isa.binding import bind
from isa.machine.control import LoopBegin, Nop
from isa.program import Program
from isa.spec import Instruction
from nki.verification import SIZES, representative_sizes, verify_program
from simulator.races.happens_before import check


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def program_of(kernel, **symbol) -> Program:
    size = nki.symbol("M", **symbol)
    return nki.compile(kernel, a=nki.TensorSpec((size, 96), nl.float32)).program


def trips(program, sizes):
    """How often each loop of each stream runs, by the bound program's own fields."""
    found = set()
    for number, core in enumerate(bind(program, sizes).cores):
        for engine, stream in core.streams.items():
            for index, instruction in enumerate(stream):
                if instruction.row is LoopBegin:
                    _, lower, upper, step, _ = instruction.values
                    count = len(range(lower, upper, step))
                    found.add((number, engine, index, count))
    return found


@pytest.mark.parametrize(
    "kernel, symbol",
    [
        (kernels.scaled_rows, {"multiple_of": 128, "max": 8192}),
        (kernels.scaled_rows, {"multiple_of": 128, "max": None}),
        (kernels.scaled_rows_remainder, {"max": 8192}),
        (kernels.scaled_rows_remainder, {"max": None, "min": 300, "multiple_of": 50}),
    ],
)
def test_the_sizes_are_admitted_and_run_loops_from_no_to_three_times(kernel, symbol):
    program = program_of(kernel, **symbol)
    chosen = representative_sizes(program)
    assert 2 <= len(chosen) <= SIZES
    by_loop = {}
    for sizes in chosen:
        assert all(s.admits(sizes[s.name]) for s in program.symbols)
        for *loop, count in trips(program, sizes):
            by_loop.setdefault(tuple(loop), set()).add(count)
    assert by_loop
    smallest = trips(program, {"M": program.symbols[0].minimum})
    least = {tuple(loop): count for *loop, count in smallest}
    for loop, counts in by_loop.items():
        highest = max(counts)
        assert highest >= 1
        # A loop that can run often runs each number of times from its least to 3.
        if highest > 1:
            assert counts >= set(range(least[loop], 4)), loop


def test_several_symbols_are_varied_together_and_alone():
    @nki.jit
    def kernel(a, b):
        outs = []
        for source in (a, b):
            rows = source.shape[0]
            out = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.shared_hbm)
            for i in nl.affine_range(rows // 128):
                tile = nl.ndarray((128, 8), dtype=source.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=tile, src=source[nl.ds(i * 128, 128), :])
                nisa.dma_copy(dst=out[nl.ds(i * 128, 128), :], src=tile)
            outs.append(out)
        return tuple(outs)

    specs = [
        nki.TensorSpec((nki.symbol(name, multiple_of=128, max=4096), 8), nl.float32)
        for name in ("M", "N")
    ]
    chosen = representative_sizes(nki.compile(kernel, *specs).program)
    assert len(chosen) <= SIZES
    pairs = {(sizes["M"], sizes["N"]) for sizes in chosen}
    assert any(m > 128 and n == 128 for m, n in pairs)
    assert any(m == 128 and n > 128 for m, n in pairs)
    assert any(m > 128 and n > 128 for m, n in pairs)


def test_sizes_that_guards_refuse_are_left_out():
    @nki.jit
    def kernel(a):
        if a.shape[0] < 512:
            return a
        return kernels.scaled_rows(a)

    program = program_of(kernel, multiple_of=128, max=8192)
    chosen = representative_sizes(program)
    assert chosen and min(sizes["M"] for sizes in chosen) >= 512


@pytest.mark.parametrize("nested", [False, True])
def test_loops_that_follow_each_other_share_semaphores_in_order(nested):
    """A loop's first tokens come from its engine at once; those of the transfers of the loop
    before it may still be on their way."""

    def copy(source, out):
        for i in nl.affine_range(source.shape[0] // 128):
            tile = nl.ndarray((128, 8), dtype=source.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=source[nl.ds(i * 128, 128), :])
            nisa.dma_copy(dst=out[nl.ds(i * 128, 128), :], src=tile)

    @nki.jit
    def kernel(a, b):
        outs = [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm) for x in (a, b)]
        for _ in nl.dynamic_range(3) if nested else range(1):
            copy(a, outs[0])
            copy(b, outs[1])
        return tuple(outs)

    specs = [
        nki.TensorSpec((nki.symbol(name, multiple_of=128, max=4096), 8), nl.float32)
        for name in ("M", "N")
    ]
    program = nki.compile(kernel, *specs).program
    for rows in range(1, 6):
        for more in range(1, 4):
            assert check(bind(program, {"M": 128 * rows, "N": 128 * more})) == []


def test_two_engines_that_know_of_each_others_end_are_waited_for():
    """A rolled loop in a rolled loop: each load of the next round follows the stores of this."""

    @nki.jit
    def kernel(a, out):
        total = nl.ndarray((128, 32), dtype=a.dtype, buffer=nl.sbuf)
        for _ in nl.affine_range(a.shape[0] // 128):
            for i in nl.affine_range(a.shape[0] // 128):
                rows = nl.ds(i * 128, 128)
                tile, other, result = (
                    nl.ndarray((128, 32), dtype=a.dtype, buffer=nl.sbuf) for _ in range(3)
                )
                nisa.dma_copy(dst=tile, src=out[rows, :])
                nisa.tensor_scalar(dst=total, data=tile, op0=nl.multiply, operand0=0.5)
                nisa.memset(dst=other, value=0.0, engine=nisa.vector_engine)
                nisa.memset(dst=other, value=1.0, engine=nisa.gpsimd_engine)
                nisa.dma_copy(dst=other, src=a[rows, :])
                nisa.tensor_copy(dst=result, src=total)
                nisa.dma_copy(dst=out[rows, :], src=result)

    symbol = nki.symbol("M", multiple_of=128, max=2048)
    spec = nki.TensorSpec((symbol, 32), nl.float32)
    program = nki.compile(kernel, spec, spec).program
    for tiles in range(1, 6):
        assert check(bind(program, {"M": 128 * tiles})) == []


def without_wait(program, core, engine, index, semaphore):
    """The program with one wait taken out of one instruction."""
    streams = dict(program.cores[core].streams)
    stream = list(streams[engine])
    old = stream[index]
    waits = tuple(w for w in old.waits if w[0] != semaphore)
    stream[index] = Instruction(old.row, old.engine, old.values, waits, old.updates, old.location)
    streams[engine] = stream
    cores = list(program.cores)
    cores[core] = dataclasses.replace(program.cores[core], streams=streams)
    return dataclasses.replace(program, cores=cores)


def test_a_missing_wait_is_found_and_called_a_defect_of_the_compiler():
    program = program_of(kernels.scaled_rows, multiple_of=128, max=8192)
    verify_program(program)
    smallest = {"M": 128}
    late = 0
    waits = [
        (core, engine, index, semaphore)
        for core, body in enumerate(program.cores)
        for engine, stream in body.streams.items()
        for index, instruction in enumerate(stream)
        for semaphore, _ in instruction.waits
    ]
    ordering = [w for w in waits if program.cores[w[0]].streams[w[1]][w[2]].row is not Nop]
    assert len(ordering) >= 3
    for where in ordering:
        broken = without_wait(program, *where)
        with pytest.raises(nki.NeuronError) as caught:
            verify_program(broken)
        assert caught.value.code == "race", where
        assert "defect" in caught.value.hint
        late += not check(bind(broken, smallest))
    assert late, "some races need more than one iteration to show"
    # The others take what is left of a loop's tokens; without them a run ends unbalanced.
    for where in set(waits) - set(ordering):
        with pytest.raises(nki.NeuronError, match="unbalanced"):
            nki.CompiledKernel(without_wait(program, *where))(np.zeros((640, 96), np.float32))


def test_checks_can_be_turned_off(monkeypatch):
    a = np.zeros((64, 8), np.float32)
    with pytest.raises(nki.NeuronError, match="race"):
        nki.compile(swaps_without_barrier[2], a)
    monkeypatch.setenv("NKI_CHECKS", "0")
    nki.compile(swaps_without_barrier[2], a)
