"""Compiled programs from which one wait is removed: `nki.load` refuses each whose removal races."""

import numpy as np
import pytest
from superfluous_waits import superfluous_waits

import nki
import nki.isa as nisa
import nki.language as nl
from isa.enums import Engine
from isa.files.container import load, save
from isa.spec import Instruction


def chain(a):
    """Engines after each other, between two transfers."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.activation(dst=tile, data=tile, op=nl.exp)
    nl.store(out, tile)
    return out


def rolled(a):
    """A loop of the device with transfers both ways."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)

    def row(at):
        nl.store(out[nl.ds(at, 4), :], nl.exp(nl.load(a[nl.ds(at, 4), :])))

    nl.fori_loop(0, a.shape[0], row, 4)
    return out


def groups(a):
    """Products that are summed up in PSUM, and taken from there."""
    out = nl.ndarray((a.shape[1], a.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray(out.shape, dtype=nl.float32, buffer=nl.psum)
    for block in range(a.shape[0] // 4):
        rows = nl.load(a[nl.ds(block * 4, 4), :])
        nisa.nc_matmul(dst=total, stationary=rows, moving=rows)
    nl.store(out, nl.copy(total))
    return out


def cores(a):
    """Two cores, each of which reads what the other has written."""
    out, held = (nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm) for _ in range(2))
    rows, core = a.shape[0] // 2, nl.program_id(0)
    mine, other = nl.ds(core * rows, rows), nl.ds((1 - core) * rows, rows)
    nl.store(held[mine, :], nl.exp(nl.load(a[mine, :])))
    nisa.core_barrier(held, (0, 1))
    nl.store(out[other, :], nl.load(held[other, :]))
    return out


KERNELS = {kernel.__name__: kernel for kernel in (chain, rolled, groups, cores)}
SHAPES = [(4, 8), (8, 8), (12, 4), (16, 8), (16, 32), (32, 16), (64, 8)]


@pytest.mark.parametrize("name", KERNELS)
def test_a_program_without_one_of_its_waits(name, tmp_path):
    """Seven programs of each kernel, 28 in all; each wait of each goes once, unless the proof says
    that it is superfluous."""
    path, racy = tmp_path / "whole.neff", tmp_path / "racy.neff"
    launched = nki.jit(KERNELS[name], platform_target="trn2")
    launched = launched[2] if name == "cores" else launched
    refused = 0
    for shape in SHAPES:
        nki.compile(launched, nki.TensorSpec(shape, nl.float32)).save(path)
        whole = load(path)
        spare = {place[:3] + place[3][:1] for place in superfluous_waits(whole)}
        for place in _waits(whole):
            if place in spare:
                continue
            program = load(path)
            _remove(program, *place)
            save(program, racy)
            with pytest.raises(nki.NeuronError) as caught:
                nki.load(racy)
            assert caught.value.code in ("race", "deadlock"), place
            refused += 1
    assert refused >= 2 * len(SHAPES)
    assert np.isfinite(nki.load(path)(np.ones(shape, np.float32))).all()


def _waits(program) -> list[tuple[int, Engine, int, int]]:
    """Core, engine, index and semaphore of each wait."""
    return [
        (number, engine, index, semaphore)
        for number, core in enumerate(program.cores)
        for engine, stream in core.streams.items()
        for index, instruction in enumerate(stream)
        for semaphore, _ in instruction.waits
    ]


def _remove(program, core: int, engine: Engine, index: int, semaphore: int) -> None:
    """Take away a wait, as somebody who seals the file again would."""
    stream = program.cores[core].streams[engine]
    old: Instruction = stream[index]
    waits = tuple(wait for wait in old.waits if wait[0] != semaphore)
    stream[index] = Instruction(old.row, old.engine, old.values, waits, old.updates, old.location)
