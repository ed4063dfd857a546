"""Instructions that a file may hold and no engine runs: refused on loading."""

import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.files.container import save
from isa.files.text import assemble, disassemble


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
    """The program's text with something else in the line of one row."""
    lines = TEXT.splitlines()
    (at,) = (number for number, line in enumerate(lines) if row in line.split()[:2])
    assert old in lines[at], lines[at]
    lines[at] = lines[at].replace(old, new)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("row", "old", "new", "message"),
    [
        ("TensorScalar", "operand0=2.0", "operand0=absent", "op0=multiply needs operand0"),
        ("TensorScalar", "op0=multiply", "op0=bitwise_or", "bit patterns of integers"),
        ("TensorTensor", "op=add", "op=bitwise_and", "dst is float32"),
        ("Activate", "[1][8]", "[0][268435456]", "268,435,456 elements a partition"),
    ],
)
def test_what_no_engine_runs_is_refused(row, old, new, message, tmp_path):
    path = tmp_path / "changed.neff"
    save(assemble(changed(row, old, new)), path)
    with pytest.raises(nki.NeuronError, match=message) as caught:
        nki.load(path)
    assert caught.value.code == "program-malformed"


def test_the_unchanged_program_is_loaded(tmp_path):
    path = tmp_path / "whole.neff"
    save(assemble(TEXT), path)
    nki.load(path)
