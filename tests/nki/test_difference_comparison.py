"""Where two ways of running a kernel part: found at the operation, the element and the distance."""

import json

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
import nki.pipeline
from isa.errors import NeuronError
from isa.spec import Instruction
from nki.cli.application import run
from nki.difference import MODES, compare_modes, unequal
from simulator.native.codegen.library import library
from simulator.native.loop.records import RecordPacking

BF16 = ml_dtypes.bfloat16


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def stored(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def normal(*shape, dtype=np.float32):
    return np.random.default_rng(5).standard_normal(shape).astype(dtype)


# Distances


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16, ml_dtypes.float8_e4m3])
def test_the_distance_of_neighbours_is_one_unit(dtype):
    """In every binade, and among denormals."""
    bits = np.dtype(f"uint{8 * np.dtype(dtype).itemsize}")
    count = 1 << min(8 * bits.itemsize - 2, 12)
    step = (1 << (8 * bits.itemsize - 2)) // count  # below infinity, from zero on
    words = (np.arange(count, dtype=np.uint64) * step).astype(bits)
    low, high = words.view(dtype), (words + bits.type(1)).view(dtype)
    found = unequal(low, high)
    assert found.elements == count and found.first == 0
    assert found.distance == 1.0
    # At the upper end of a binade the unit is that of the larger of the two.
    assert unequal(low, high, 1.0) is None and unequal(high, low, 0.4).elements == count


def test_what_has_no_distance():
    inf, nan = np.inf, np.nan
    one = np.float32([nan, inf, -inf, 0.0, nan, inf, 1.0])
    other = np.float32([nan, inf, -inf, -0.0, 1.0, 1.0, nan])
    found = unequal(one, other, 1e30)
    assert (found.elements, found.first, found.distance) == (3, 4, inf)
    found = unequal(np.int32([3, -(2**31)]), np.int32([5, 2**31 - 1]))
    assert (found.elements, found.furthest, found.distance) == (2, 1, 2.0**32 - 1)


def test_the_unit_is_that_of_the_coarser_type():
    one, other = np.array([1.0], BF16), np.array([1.0 + 2.0**-9], np.float32)
    assert unequal(one, other).distance == 0.25
    assert unequal(other, one, 0.25) is None


# Runs that agree


def loops(a, count):
    """Loops of all kinds, a reduction, a matmul, indices in memory."""
    tile, stop = nl.load(a), nisa.register_alloc()
    nisa.register_load(stop, nl.load(count))
    total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(total, value=0.0)
    for i in nl.dynamic_range(stop):
        nisa.tensor_tensor(total, total, tile[:, nl.ds(i, 1)], op=nl.add)
    for i in range(2):
        product = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(product, tile[:, 0:128], tile[:, i * 64 : i * 64 + 128])
        nisa.tensor_tensor(tile[:, 0:128], product, tile[:, 0:128], op=nl.multiply)
    nisa.tensor_scalar(tile, tile, op0=nl.add, operand0=total)
    return stored(nl.softmax(tile, axis=-1))


def halves(a):
    """Each core its half; then they swap."""
    core = nl.program_id(0)
    tile, other = nl.load(a[core]), nl.ndarray(a.shape[1:], dtype=a.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=float(core + 2))
    nisa.sendrecv(tile, other, 1 - core, 1 - core, pipe_id=0)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out[core], src=other)
    return out


@pytest.mark.parametrize(
    "modes", [("eager", "device"), ("reference", "device"), ("device", "native")]
)
def test_modes_agree_instruction_by_instruction(modes):
    a, count = normal(128, 256), np.array([[3]], np.int32)
    found = compare_modes(nki.jit(loops), (a, count), {}, modes)
    assert found.agrees and found.unequal == 0
    assert found.compared > 3 + 2 * 2 + 8  # every iteration of the loops
    found = compare_modes(nki.jit(halves)[2], (normal(2, 8, 16),), {}, modes)
    assert found.agrees and found.compared == 2 * 3


def test_inputs_stay_as_they_are():
    def kernel(a):
        nl.store(a, nl.add(nl.load(a), 1.0))

    a = np.ones((4, 4), np.float32)
    assert compare_modes(nki.jit(kernel), (a,), {}).agrees
    np.testing.assert_array_equal(a, np.ones((4, 4)))


# Runs that differ


def thirds(a):
    tile = nl.load(a)
    for _ in range(3):
        nisa.tensor_scalar(tile[:, 4:], tile[:, 4:], op0=nl.multiply, operand0=0.5)
    nisa.tensor_scalar(tile, tile, op0=nl.add, operand0=1.0)
    return stored(tile)


@pytest.mark.parametrize("modes", [("eager", "device"), ("reference", "native")])
def test_a_wrong_instruction_of_the_program(monkeypatch, modes):
    """The second of three instructions from one line multiplies by another number."""
    compile_kernel = nki.pipeline.compile_kernel

    def wrong(*given):
        program = compile_kernel(*given)
        stream = next(
            s
            for s in program.cores[0].streams.values()
            if any(i.row.name == "TensorScalar" for i in s)
        )
        places = [n for n, i in enumerate(stream) if i.row.name == "TensorScalar"]
        old = stream[places[1]]
        values = tuple(0.25 if value == 0.5 else value for value in old.values)
        stream[places[1]] = Instruction(
            old.row, old.engine, values, old.waits, old.updates, old.location
        )
        return program

    monkeypatch.setattr(nki.pipeline, "compile_kernel", wrong)
    a = np.full((8, 12), 8.0, np.float32)
    found = compare_modes(nki.jit(thirds), (a,), {}, modes)
    first = found.first
    assert (first.operation, first.operand, first.tensor) == ("tensor_scalar", "dst", "tile")
    assert first.location.line == thirds.__code__.co_firstlineno + 3
    assert (first.shape, first.unequal.elements) == ((8, 8), 64)
    assert first.unequal.first_values == (2.0, 1.0)
    assert first.unequal.distance == 2.0**22
    assert found.unequal == 4  # it, the next one, the sum, and the store
    assert list(found.outputs) == [0] and found.outputs[0].elements == 64
    assert found.outputs[0].first == 4


@pytest.mark.skipif(library() is None, reason="there is no LLVM")
def test_a_defect_of_the_native_loop(monkeypatch):
    """One that the operations called one by one do not have: an address of its records."""
    template = RecordPacking._template

    def wrong(self, instruction, kind):
        made = template(self, instruction, kind)
        if instruction.row.name == "TensorScalar" and 0.5 in instruction.values:
            return template(self, copied(instruction), kind)
        return made

    def copied(old):
        values = tuple(0.25 if value == 0.5 else value for value in old.values)
        return Instruction(old.row, old.engine, values, old.waits, old.updates, old.location)

    monkeypatch.setattr(RecordPacking, "_template", wrong)
    a = np.full((8, 12), 8.0, np.float32)
    assert compare_modes(nki.jit(thirds), (a,), {}, ("eager", "device")).agrees
    found = compare_modes(nki.jit(thirds), (a,), {}, ("device", "native"))
    assert found.first.location.line == thirds.__code__.co_firstlineno + 3
    assert found.first.executed == 0 and found.first.unequal.first_values == (4.0, 2.0)
    assert found.outputs[0].elements == 64


def test_a_kernel_that_asks_what_changes():
    calls = []

    def kernel(a):
        calls.append(1)
        tile = nl.load(a)
        nisa.tensor_scalar(tile[0:2, 1:4], tile[0:2, 1:4], op0=nl.add, operand0=len(calls) * 1.0)
        return stored(tile)

    found = compare_modes(nki.jit(kernel), (np.zeros((4, 5), np.float32),), {})
    first = found.first
    assert first.coordinates(first.unequal.first) == (0, 0) and first.shape == (2, 3)
    assert first.location.line == kernel.__code__.co_firstlineno + 3


def test_a_kernel_that_does_something_else_is_refused():
    calls = []

    def kernel(a):
        calls.append(1)
        tile = nl.load(a)
        if len(calls) % 2:
            nisa.reciprocal(tile, tile)
        nisa.tensor_scalar(tile, tile, op0=nl.add, operand0=1.0)
        return stored(tile)

    with pytest.raises(NeuronError) as caught:
        compare_modes(nki.jit(kernel), (np.ones((4, 5), np.float32),), {})
    assert caught.value.code == "value-not-allowed"
    assert "reciprocal" in caught.value.what and "tensor_scalar" in caught.value.what


def test_where_rounding_to_bfloat16_shows():
    """A large sum, of which a large part is taken off again."""

    def kernel(a):
        tile = nl.load(a)
        nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=0.7)
        nisa.tensor_scalar(tile, tile, op0=nl.add, operand0=64.0)
        nisa.tensor_scalar(tile, tile, op0=nl.add, operand0=-64.0)
        return stored(tile)

    a = normal(128, 64, dtype=BF16)
    line = kernel.__code__.co_firstlineno
    first = compare_modes(nki.jit(kernel), (a,), {}, ("device", "fp32")).first
    assert first.location.line == line + 2 and first.dtypes == ("bfloat16", "float32")
    exact = a.astype(np.float32) * np.float32(0.7)
    rounded = exact.astype(BF16).astype(np.float32)
    assert first.unequal.elements == np.count_nonzero(exact != rounded)
    assert 0.45 < first.unequal.distance <= 0.5
    found = compare_modes(nki.jit(kernel), (a,), {}, ("device", "fp32"), 1.0)
    assert found.first.location.line == line + 4
    assert found.outputs[0].distance == found.first.unequal.distance > 10


def test_an_unknown_mode_is_refused():
    with pytest.raises(NeuronError, match="none of eager") as caught:
        compare_modes(nki.jit(thirds), (), {}, ("eager", "vendor"))
    assert caught.value.code == "unknown-mode" and set(MODES) > {"eager", "device"}


# The command

FILE = """
import nki, nki.isa as nisa, nki.language as nl

@nki.jit
def third(a):
    tile = nl.load(a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=1 / 3)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out
"""


def test_the_command(tmp_path, capsys):
    path = tmp_path / "kernels.py"
    path.write_text(FILE)
    given = ["diff", f"{path}:third", "--input", "a=[[1,3,4]]:bfloat16"]
    assert run(given) == 0
    assert "no difference" in capsys.readouterr().out
    assert run([*given, "--modes", "device,fp32"]) == 1
    shown = capsys.readouterr().out
    assert f"{path}:7" in shown and "operand0=1 / 3" in shown and "tile (dst)" in shown
    assert run([*given, "--modes", "device,fp32", "--tolerance", "0.5"]) == 0
    capsys.readouterr()
    assert run([*given, "--modes", "device,fp32", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["first"]["line"] == 7 and data["first"]["first_index"] == [0, 0]
    exact = np.float32(1 / 3)
    expected = [float(exact.astype(BF16)), float(exact)]
    assert data["first"]["first_values"] == expected
    assert data["outputs"]["output0"]["elements"] == data["first"]["elements"]
    for wrong in ("device", "device,vendor", "device,eager,fp32"):
        assert run([*given, "--modes", wrong]) == 2
    capsys.readouterr()
