"""Errors of passes and runs name the calls that lead to their line (SDK
release-notes/components/nki.rst, 0.4.0, "Improved error messages for nested NKI calls")."""

import sys

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl

TABLE = np.ones((16, 8), np.float32)

pytestmark = pytest.mark.skipif(sys.gettrace() is not None, reason="a debugger or coverage traces")


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def pick(table, index):
    indices = nl.ndarray((4, 1), nl.int32, nl.sbuf)
    nisa.memset(indices, value=index)
    tile = nl.ndarray((4, 8), nl.float32, nl.sbuf)
    nisa.dma_copy(
        dst=tile,
        src=table.vector_select(0, indices),
    )
    return tile


def last(table):
    return pick(table, 16)


def stored(tile):
    out = nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm)
    nl.store(out, tile)
    return out


def notes(error):
    return [line.strip() for line in "\n".join(error.__notes__).splitlines() if "note: " in line]


def place(function, offset):
    code = function.__code__
    return f"{__file__}:{code.co_firstlineno + offset} in {code.co_name}"


@pytest.mark.parametrize("mode", ["device", "reference"])
def test_a_run_lists_the_calls_that_lead_to_the_line(mode, capsys):
    def kernel(table):
        print("traced")
        first = pick(table, 0)
        nisa.tensor_tensor(first, first, last(table), nl.add)
        return stored(first)

    with pytest.raises(nki.NeuronError, match="is 16; the tensor has rows 0 to 15") as caught:
        nki.simulate(nki.jit(kernel), mode=mode)(TABLE)
    assert notes(caught.value) == [
        f"note: called from {place(kernel, 2)}",
        f"note: called from {place(last, 1)}, from {place(kernel, 3)}",
    ]
    assert caught.value.notes == tuple(note[6:] for note in notes(caught.value))
    assert capsys.readouterr().out == "traced\n"


def test_many_callers_are_counted():
    def kernel(table):
        tile = pick(table, 1)
        tile = pick(table, 2)
        tile = pick(table, 3)
        tile = pick(table, 4)
        for index in range(14, 17):
            tile = pick(table, index)
        return stored(tile)

    with pytest.raises(nki.NeuronError) as caught:
        nki.jit(kernel)(TABLE)
    assert len(notes(caught.value)) == 4
    assert notes(caught.value)[3] == "note: called from 2 more places"


def test_compiling_does_too():
    def filled():
        tile = nl.ndarray((128, 1024), nl.float32, nl.sbuf, address=(0, 0))
        nisa.memset(tile, 0.0)
        return tile

    def kernel(a):
        one = filled()
        two = filled()
        nisa.tensor_tensor(one, one, two, nl.add)
        return stored(one)

    with pytest.raises(nki.NeuronError, match="address-overlap") as caught:
        nki.compile(nki.jit(kernel), nki.TensorSpec((1, 1), nl.float32))
    assert notes(caught.value) == [f"note: called from {place(kernel, line)}" for line in (1, 2)]


def test_lines_of_the_kernel_itself_and_of_its_traceback_need_no_callers():
    def own(table):
        indices = nl.ndarray((4, 1), nl.int32, nl.sbuf)
        nisa.memset(indices, value=16)
        tile = nl.ndarray((4, 8), nl.float32, nl.sbuf)
        nisa.dma_copy(tile, table.vector_select(0, indices))
        return stored(tile)

    def refused(table):
        return stored(pick(table, 2.5))

    for kernel in (own, refused):
        with pytest.raises(nki.NeuronError) as caught:
            nki.jit(kernel)(TABLE)
        assert notes(caught.value) == []


def filled(a):
    tile = nl.ndarray(a.shape, a.dtype, nl.sbuf)
    scratch = nl.ndarray(a.shape, a.dtype, nl.sbuf)
    nisa.memset(dst=scratch, value=0.0)
    nisa.dma_copy(dst=tile, src=a)
    return tile


def passed_on(a):
    return filled(a)


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_tensors_are_called_as_the_callers_variables(mode, capsys):
    def kernel(table):
        weights = filled(table)
        bias = passed_on(table)
        print(weights.name, bias.name, filled(table).name)
        return stored(weights)

    nki.simulate(kernel, mode=mode)(TABLE)
    assert capsys.readouterr().out == "weights bias tile\n"


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_the_text_names_the_callers_of_a_line_that_is_refused(mode):
    def wrong(tile):
        nisa.nc_matmul(dst=tile, stationary=tile, moving=tile)

    def kernel(table):
        weights = filled(table)
        wrong(weights)
        return stored(weights)

    with pytest.raises(nki.NeuronError) as caught:
        nki.simulate(kernel, mode=mode)(TABLE)
    lines = str(caught.value).splitlines()
    assert "`weights`" in lines[0] or "'weights'" in lines[0] or "dst" in lines[0]
    assert lines[1:] == [
        f"  at {place(wrong, 1)}",
        f"  called from {place(kernel, 2)}",
        f"  try: {caught.value.hint}",
    ]
