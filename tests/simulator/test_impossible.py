"""Instructions that a file may hold and no engine runs: refused on loading."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.files.container import save
from isa.files.text import assemble, disassemble
from simulator.execute import run


@nki.jit(platform_target="trn2")
def kernel(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
    nisa.activation(dst=tile, data=tile, op=nl.exp)
    nl.store(out, tile)
    return out


TEXT = disassemble(nki.compile(kernel, nki.TensorSpec((4, 8), nl.float32)).program)


def changed(row, old, new):
    """The program's text with something else in the first line of a row that has it."""
    lines = TEXT.splitlines()
    found = [at for at, line in enumerate(lines) if row in line.split()[:2] and old in line]
    at = found[0]
    lines[at] = lines[at].replace(old, new)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("row", "old", "new", "message"),
    [
        ("TensorScalar", "operand0=2.0", "operand0=absent", "op0=multiply needs operand0"),
        ("TensorScalar", "op0=multiply", "op0=bitwise_or", "bit patterns of integers"),
        ("TensorTensor", "op=add", "op=bitwise_and", "dst is float32"),
        ("Activate", "[1][8]", "[0][268435456]", "268,435,456 elements a partition"),
        ("DmaCopy", "[1,8][8,4]", "[1,0][8,1099511627776]", "bytes, and HBM"),
        ("DmaCopy", "[1,8][8,4]", "[1,8][8,-9223372036854775800]", "a dimension of -9,223,372"),
    ],
)
def test_what_no_engine_runs_is_refused(row, old, new, message, tmp_path):
    path = tmp_path / "changed.neff"
    save(assemble(changed(row, old, new)), path)
    with pytest.raises(nki.NeuronError, match=message) as caught:
        nki.load(path)
    assert caught.value.code == "program-malformed"


@pytest.mark.parametrize("native", [True, False])
def test_a_transposition_into_another_shape_is_refused(native):
    """As many elements in another shape: native code took them in order (found by a mutant)."""
    text = changed("DmaCopy", "DmaCopy", "DmaTranspose")
    program = assemble(text)
    with pytest.raises(nki.NeuronError, match=r"gives .8, 4., and dst is .4, 8.") as caught:
        run(program, [np.zeros((4, 8), np.float32)], native=native)
    assert caught.value.code == "program-malformed"


@nki.jit(platform_target="trn2")
def products(a, b):
    out = nl.ndarray((16, 8), dtype=a.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((16, 16), dtype=nl.float32, buffer=nl.psum)
    for block in range(3):
        rows = nl.ds(block * 32, 32)
        nisa.nc_matmul(
            dst=total[:, 0:8], stationary=nl.load(a[rows, :]), moving=nl.load(b[rows, :])
        )
    nl.store(out, nl.copy(total[:, 0:8]))
    return out


@pytest.mark.parametrize("columns", [0, 8])
@pytest.mark.parametrize("native", [True, False])
def test_a_product_with_another_tile_than_it_takes_is_refused(columns, native):
    """The one behind it runs in NumPy, as it reads what was never written: it keeps no secret."""
    specs = nki.TensorSpec((96, 16), nl.float32), nki.TensorSpec((96, 8), nl.float32)
    lines = disassemble(nki.compile(products, *specs).program).splitlines()
    loads = [at for at, line in enumerate(lines) if "LoadStationary" in line]
    last = [at for at, line in enumerate(lines) if "MultiplyMoving" in line][-1]
    lines[loads[1]] = lines[loads[1]].replace("[1][16]", f"[1][{columns}]")
    lines[last] = lines[last].replace("+0x0[", "+0x4[", 1)
    inputs = [np.ones(spec.shape, np.float32) for spec in specs]
    with pytest.raises(nki.NeuronError) as caught:
        run(assemble("\n".join(lines) + "\n"), inputs, native=native)
    assert caught.value.code == "ir-invalid"


def test_a_sum_whose_results_all_go_to_one_place_is_the_same_for_both_executors():
    specs = nki.TensorSpec((96, 16), nl.float32), nki.TensorSpec((96, 8), nl.float32)
    lines = disassemble(nki.compile(products, *specs).program).splitlines()
    last = [at for at, line in enumerate(lines) if "MultiplyMoving" in line][-1]
    lines[last] = lines[last].replace("[1][8]", "[0][8]", 1)
    program = assemble("\n".join(lines) + "\n")
    inputs = [
        np.arange(np.prod(spec.shape), dtype=np.float32).reshape(spec.shape) for spec in specs
    ]
    one, other = (run(program, inputs, native=native).outputs[0] for native in (True, False))
    assert np.array_equal(one, other)


def test_the_unchanged_program_is_loaded(tmp_path):
    path = tmp_path / "whole.neff"
    save(assemble(TEXT), path)
    nki.load(path)


@nki.jit(platform_target="trn2")
def counted(a, times):
    tile, register = nl.load(a), nisa.register_alloc()
    nisa.register_load(register, nl.load(times))

    def twice(_):
        nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)

    nl.fori_loop(0, register, twice)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [(" step=1 ", " step=0 ", "does not end"), ("[1][1] ", "[0][0] ", "no element")],
)
def test_loops_and_registers_that_no_engine_has_are_refused(old, new, message, tmp_path):
    specs = nki.TensorSpec((4, 8), nl.float32), nki.TensorSpec((1, 1), nl.int32)
    lines = disassemble(nki.compile(counted, *specs).program).splitlines()
    rows = "LoopBegin", "RegisterLoad"
    at = next(n for n, line in enumerate(lines) if old in line and any(r in line for r in rows))
    lines[at] = lines[at].replace(old, new)
    path = tmp_path / "changed.neff"
    save(assemble("\n".join(lines)), path)
    with pytest.raises(nki.NeuronError, match=message) as caught:
        nki.load(path)
    assert caught.value.code == "program-malformed"
