"""What other compilers do, as options: results keep their bits, and the work is less."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.verify import verify
from transformed_kernels import ALL, five_loads, rows_of, stored, tile

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError
from nki.cli import main


def test_nothing_is_done_unless_it_is_asked_for():
    assert rows_of(five_loads)["dma_copy"] == 6
    assert rows_of(five_loads, "reuse-loads:b")["dma_copy"] == 6
    assert five_loads.on("trn2").transformations == ()


STEP = st.tuples(st.integers(0, 5), st.integers(0, 7), st.integers(0, 7))


def run_steps(a, steps, tiles):
    """Appends to `tiles` what steps compute of earlier ones; many come twice."""
    for kind, i, j in steps:
        x, y = tiles[i % len(tiles)], tiles[j % len(tiles)]
        new = tile()
        if kind == 0:
            nisa.dma_copy(dst=new, src=a[:, nl.ds(32 * (i % 2), 96)])
        elif kind == 1:
            nisa.tensor_tensor(dst=new, data1=x, data2=y, op=nl.add)
        elif kind == 2:
            nisa.activation(dst=new, op=nl.square, data=x)
        elif kind == 3:
            bank = tile((64, 96), buffer=nl.psum)
            nisa.nc_matmul(dst=bank, stationary=x[:, :64], moving=y)
            nisa.tensor_copy(dst=new, src=bank)
        elif kind == 4:  # an earlier tile changes
            nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=0.5)
            continue
        else:
            nisa.tensor_scalar(dst=new, data=x, op0=nl.minimum, operand0=float(j % 2))
        tiles.append(new)


@settings(max_examples=25, deadline=None)
@given(
    before=st.lists(STEP, min_size=1, max_size=8),
    inside=st.lists(STEP, max_size=6),
    behind=st.lists(STEP, min_size=1, max_size=8),
    names=st.lists(st.sampled_from([*ALL, "reuse-loads=2"]), min_size=1, max_size=4),
)
def test_random_kernels_keep_their_bits(before, inside, behind, names):
    def random_kernel(a):
        tiles, total = [nl.load(a[:, :96])], nl.zeros((64, 96), dtype=nl.float32)
        run_steps(a, before, tiles)
        for _ in nl.dynamic_range(0, 3):
            own = list(tiles)
            run_steps(a, inside, own)
            nisa.tensor_tensor(dst=total, data1=total, data2=own[-1], op=nl.add)
        run_steps(a, behind, tiles)
        for one in tiles:
            nisa.tensor_tensor(dst=total, data1=total, data2=one, op=nl.add)
        return stored(total)

    kernel = nki.jit(random_kernel, target="trn2")
    a = np.random.default_rng(0).uniform(-1, 1, (64, 128)).astype(np.float32)
    plain = nki.simulate(kernel, mode="reference")(a)
    moved = kernel.with_transformations(*names)
    verify(moved.trace(nki.TensorSpec((64, 128), nl.float32)))
    assert plain.tobytes() == moved(a).tobytes()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("reuse", "no transformation"),
        ("reuse-loads=0", "no transformation"),
        ("hoist=3", "takes no number"),
        ("squares-on-vector:a", "takes no tensor"),
    ],
)
def test_other_texts_are_refused(text, word):
    with pytest.raises(NeuronError, match=word):
        five_loads.with_transformations(text)


def test_jit_takes_them_and_other_processes_have_them():
    kernel = nki.jit(five_loads.function, transformations=["reuse-loads"])
    assert rows_of(kernel)["dma_copy"] == 2
    assert kernel.__reduce__()[1][2]["transformations"] == kernel.transformations


TWICE = """
import nki, nki.isa as nisa, nki.language as nl
@nki.jit
def twice(a):
    x, y, z = nl.load(a), nl.load(a), nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=z, data1=x, data2=y, op=nl.add)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, z)
    return out
"""


def test_a_profile_says_what_they_change(tmp_path, capsys):
    file = tmp_path / "k.py"
    file.write_text(TWICE)
    asked = ["profile", f"{file}:twice", "--input", "a=normal(128,4096):float32", "--json"]
    assert main([*asked, "--transform", "reuse-loads", "--compare", "@"]) == 0
    data = json.loads(capsys.readouterr().out)
    size = 128 * 4096 * 4
    assert data["profile"]["dma"]["hbm_read_bytes"] == size
    figures = {one["name"]: one for one in data["compared"]["figures"]}
    assert figures["HBM bytes read"]["before"] == f"{2 * size:,}"
    assert figures["HBM bytes read"]["after"] == f"{size:,}"
    assert main([*asked, "--compare", "@", "--compare-transform", "reuse-loads"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["profile"]["dma"]["hbm_read_bytes"] == 2 * size


def test_a_container_takes_none(tmp_path, capsys):
    file = tmp_path / "k.py"
    file.write_text(TWICE)
    shapes = ["--input", "a=(128,64):float32", "--target", "trn2"]
    written = str(tmp_path / "k.neff")
    assert main(["compile", f"{file}:twice", *shapes, "-o", written, "--transform", "hoist"]) == 0
    assert main(["run", written, "--transform", "hoist"]) != 0
    assert "is compiled" in capsys.readouterr().err
    assert main(["ir", f"{file}:twice", *shapes, "--transform", "hoist=2"]) != 0
    assert "takes no number" in capsys.readouterr().err
