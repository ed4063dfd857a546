"""Kernels whose tensors do not fit into HBM, and containers that were changed after the proof."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.files.container import load as load_program
from isa.files.container import save
from nki.verification import hbm_capacity

GIB = 1 << 30


@nki.jit
def through(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    held = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.private_hbm)
    tile = nl.load(a[:4, :8])
    nl.store(held[:4, :8], tile)
    nl.store(out[:4, :8], tile)
    return out


@pytest.mark.parametrize(("target", "stack"), [("trn1", 16), ("trn2", 24), ("trn3", 36)])
def test_three_tensors_fit_into_a_stack_or_not(target, stack):
    rows = stack * GIB // 3 // (1 << 20)
    nki.compile(through, nki.TensorSpec((rows, 1 << 18), nl.float32), target=target)
    with pytest.raises(nki.NeuronError) as caught:
        nki.compile(through, nki.TensorSpec((rows + 1, 1 << 18), nl.float32), target=target)
    error = caught.value
    assert error.code == "hbm-overflow" and f"{stack * GIB:,} B" in error.what
    notes = "\n".join(error.notes)
    size = (rows + 1) << 20
    for category in ("arguments", "results", "internal tensors"):
        assert f"{size:,} B  {category}" in notes
    assert f"held float32[{rows + 1}, 262144]" in notes and f"{__file__}:" in notes


@nki.jit
def of_64_gib(a):
    out = nl.ndarray((4, 8), dtype=a.dtype, buffer=nl.shared_hbm)
    for _ in range(2):
        held = nl.ndarray((1 << 15, 1 << 18), dtype=a.dtype, buffer=nl.private_hbm)  # here
        nl.store(held[:4, :8], nl.load(a))
    nl.store(out, nl.load(a))
    return out


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_all_modes_refuse_before_they_take_memory(mode):
    with pytest.raises(nki.NeuronError) as caught:
        nki.simulate(of_64_gib, mode=mode, target="trn2")(np.ones((4, 8), np.float32))
    error = caught.value
    assert error.code == "hbm-overflow" and "# here" in error.location.text
    assert f"{32 * GIB:,} B  held float32[32768, 262144]" in "\n".join(error.notes)


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_an_iteration_on_the_device_gives_back_what_it_took(mode):
    def kernel(a):
        out = nl.ndarray((4, 8), dtype=a.dtype, buffer=nl.shared_hbm)
        for _ in nl.dynamic_range(100):
            held = nl.ndarray((1 << 10, 1 << 10), dtype=a.dtype, buffer=nl.private_hbm)
            nl.store(held[:4, :8], nl.load(a))
            nl.store(out, nl.load(held[:4, :8]))
        return out

    data = np.ones((4, 8), np.float32)
    with patch.object(hbm_capacity, "room_of", lambda target: 128 << 20):
        assert np.array_equal(nki.simulate(kernel, mode=mode, target="trn2")(data), data)


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
@pytest.mark.parametrize("trips", [8, 100])
def test_iterations_overlap_only_where_hbm_has_room_for_what_each_keeps(mode, trips):
    def kernel(a):
        out = nl.ndarray((4, 8), dtype=a.dtype, buffer=nl.shared_hbm)
        for _ in nl.dynamic_range(trips):
            held = nl.ndarray((1 << 10, 1 << 10), dtype=a.dtype, buffer=nl.private_hbm)
            nl.store(held[:4, :8], nl.load(a))
            nl.store(out, nl.load(held[:4, :8]))
        return out

    data = np.ones((4, 8), np.float32)
    with patch.object(hbm_capacity, "room_of", lambda target: 7 << 20):
        assert np.array_equal(nki.simulate(kernel, mode=mode, target="trn2")(data), data)


def test_sizes_of_symbols_count_when_they_are_known():
    rows = nki.symbol("M", max=1 << 20)
    compiled = nki.compile(through, nki.TensorSpec((rows, 1 << 18), nl.float32), target="trn2")
    compiled.bind([(8192, 1 << 18)])
    with pytest.raises(nki.NeuronError, match="hbm-overflow"):
        compiled.bind([(8193, 1 << 18)])


@nki.jit
def doubled(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
    nl.store(out, tile)
    return out


def test_a_container_whose_waits_were_removed_is_refused(tmp_path):
    whole = tmp_path / "whole.neff"
    nki.compile(doubled, nki.TensorSpec((4, 8), nl.float32), target="trn2").save(whole)
    data = np.ones((4, 8), np.float32)
    np.testing.assert_array_equal(nki.load(whole)(data), data + data)
    count = 0
    for core in load_program(whole).cores:
        for engine, stream in core.streams.items():
            for number, instruction in enumerate(stream):
                if not instruction.waits:
                    continue
                program = load_program(whole)
                changed = program.cores[0].streams[engine]
                semaphores = {semaphore for semaphore, _ in instruction.waits}
                changed[number].waits = ()
                for others in program.cores[0].streams.values():
                    for other in others:
                        other.updates = tuple(u for u in other.updates if u[0] not in semaphores)
                racy = tmp_path / "racy.neff"
                save(program, racy)
                with pytest.raises(nki.NeuronError) as caught:
                    nki.load(racy)
                assert caught.value.code in ("race", "deadlock")
                count += 1
    assert count >= 2


def test_without_checks_a_container_is_taken_as_it_is(tmp_path, monkeypatch):
    path = tmp_path / "whole.neff"
    nki.compile(doubled, nki.TensorSpec((4, 8), nl.float32), target="trn2").save(path)
    monkeypatch.setenv("NKI_CHECKS", "0")
    monkeypatch.setattr("nki.verification.verify_program", None)
    nki.load(path)


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_a_first_iteration_that_is_peeled_takes_no_room_of_its_own(mode):
    """4 MiB an iteration, 7 MiB in all; the first product overwrites: its loop is peeled."""

    def kernel(a):
        out = nl.ndarray((8, 8), dtype=a.dtype, buffer=nl.shared_hbm)
        total = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum)
        for _ in nl.dynamic_range(100):
            held = nl.ndarray((1 << 10, 1 << 10), dtype=a.dtype, buffer=nl.private_hbm)
            nl.store(held[:4, :8], nl.load(a))
            tile = nl.load(held[:4, :8])
            nisa.nc_matmul(dst=total, stationary=tile, moving=tile)
        nl.store(out, nl.copy(total))
        return out

    data = np.ones((4, 8), np.float32)
    with patch.object(hbm_capacity, "room_of", lambda target: 7 << 20):
        found = nki.simulate(kernel, mode=mode, target="trn2")(data)
    assert np.array_equal(found, np.full((8, 8), 400))
