"""What other compilers do, as options: results keep their bits, and the work is less."""

from __future__ import annotations

import json
from collections import Counter

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from isa.enums import Engine, Memory
from isa.errors import NeuronError
from nki.cli import main
from nki.ir.checks.verify import verify
from nki.ir.nodes import Loop, operations
from nki.transformations import TRANSFORMATIONS

ALL = tuple(TRANSFORMATIONS)
SPEC = nki.TensorSpec((64, 96), nl.float32)


def tile(shape=(64, 96), dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def stored(result):
    out = nl.ndarray(result.shape, dtype=result.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=result)
    return out


def rows_of(kernel, *names, specs=(SPEC,), target="trn2"):
    """How often each operation is in a kernel with transformations."""
    traced = kernel.with_transformations(*names).trace(*specs, target=target)
    verify(traced)
    return Counter(op.row.name for body in traced.bodies for op in operations(body))


@nki.jit
def five_loads(a):
    total = nl.zeros(a.shape, dtype=nl.float32)
    for _ in range(5):
        part = tile()
        nisa.dma_copy(dst=part, src=a)
        nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
    return stored(total)


@pytest.mark.parametrize(("uses", "left"), [("", 1), ("=5", 1), ("=3", 2), ("=2", 3), ("=1", 5)])
def test_a_load_serves_so_many_tiles(uses, left):
    assert rows_of(five_loads, f"reuse-loads{uses}")["dma_copy"] == left + 1
    a = np.random.default_rng(0).standard_normal((64, 96), dtype=np.float32)
    found = five_loads.with_transformations(f"reuse-loads:a{uses}").on("trn2")(a)
    np.testing.assert_array_equal(found, a + a + a + a + a)


def test_nothing_is_done_unless_it_is_asked_for():
    assert rows_of(five_loads)["dma_copy"] == 6
    assert rows_of(five_loads, "reuse-loads:b")["dma_copy"] == 6
    assert five_loads.on("trn2").transformations == ()


@nki.jit
def changing(a, how):
    """Two loads or products that must both stay."""
    first, second = tile(), tile()
    nisa.dma_copy(dst=first, src=a)
    if how == "tile":
        nisa.tensor_scalar(dst=first, data=first, op0=nl.add, operand0=1.0)
    if how == "tensor":
        nisa.dma_copy(dst=a, src=first)
    nisa.dma_copy(dst=second, src=a)
    if how == "operand":
        third = tile()
        nisa.tensor_tensor(dst=third, data1=first, data2=second, op=nl.add)
        nisa.tensor_scalar(dst=second, data=second, op0=nl.add, operand0=1.0)
        fourth = tile()
        nisa.tensor_tensor(dst=fourth, data1=first, data2=second, op=nl.add)
        first, second = third, fourth
    nisa.tensor_tensor(dst=second, data1=first, data2=second, op=nl.multiply)
    return stored(second)


@pytest.mark.parametrize("how", ["tile", "tensor", "operand"])
def test_what_changed_between_is_not_taken_for_the_same(how):
    a = np.random.default_rng(0).standard_normal((64, 96), dtype=np.float32)
    wanted = {"tile": (a + 1) * a, "tensor": a * a, "operand": (a + a) * (a + (a + 1))}[how]
    for names in ((), ALL):
        found = changing.with_transformations(*names).on("trn2")(a.copy(), how)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


@nki.jit
def looped(a):
    total = nl.zeros(a.shape, dtype=nl.float32)
    for _ in nl.dynamic_range(4):
        part, double = tile(), tile()
        nisa.dma_copy(dst=part, src=a)
        nisa.tensor_tensor(dst=double, data1=part, data2=part, op=nl.add)
        nisa.tensor_tensor(dst=total, data1=total, data2=double, op=nl.add)
    return stored(total)


def test_what_a_loop_repeats_comes_before_it():
    traced = looped.with_transformations("hoist").trace(SPEC, target="trn2")
    (loop,) = (node for node in traced.bodies[0] if isinstance(node, Loop))
    assert [op.row.name for op in operations(loop.body)] == ["tensor_tensor"]
    a = np.random.default_rng(0).standard_normal((64, 96), dtype=np.float32)
    wanted = looped.on("trn2")(a)
    np.testing.assert_array_equal(looped.with_transformations("hoist").on("trn2")(a), wanted)
    np.testing.assert_allclose(wanted, 8 * a, rtol=1e-6)


def test_a_named_tile_alone_leaves_a_loop():
    traced = looped.with_transformations("hoist:part").trace(SPEC, target="trn2")
    (loop,) = (node for node in traced.bodies[0] if isinstance(node, Loop))
    assert sum(op.row.name == "tensor_tensor" for op in operations(loop.body)) == 2


@nki.jit
def spread(a):
    """A product, copied out of PSUM, that one operation reads."""
    one = nl.ones((1, 64), dtype=nl.float32)
    row, bank, copy, done = tile((1, 96)), tile(buffer=nl.psum), tile(), tile()
    nisa.dma_copy(dst=row, src=a[:1, :])
    nisa.nc_matmul(dst=bank, stationary=one, moving=row)
    nisa.activation(dst=copy, op=nl.copy, data=bank)
    nisa.tensor_tensor(dst=done, data1=nl.load(a), data2=copy, op=nl.multiply)
    return stored(done)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_a_product_is_read_where_it_is(target):
    assert rows_of(spread, target=target)["activation"] == 1
    assert rows_of(spread, "read-in-psum:copy", target=target)["activation"] == 0
    assert rows_of(spread, "read-in-psum:done", target=target)["activation"] == 1
    a = np.random.default_rng(0).standard_normal((64, 96), dtype=np.float32)
    plain = spread.on(target)(a)
    np.testing.assert_array_equal(spread.with_transformations("read-in-psum").on(target)(a), plain)
    np.testing.assert_allclose(plain, a * a[:1], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int32])
def test_squares_of_floats_are_products(dtype):
    @nki.jit
    def squares(a):
        return stored(nl.square(nl.load(a)))

    spec = nki.TensorSpec((64, 96), nl.float32 if dtype is np.float32 else dtype)
    before = rows_of(squares, specs=(spec,))
    found = rows_of(squares, "squares-on-vector", specs=(spec,))
    assert found["tensor_tensor"] == 1
    assert before == found if dtype is np.int32 else before["activation"] == 1
    a = (100 * np.random.default_rng(0).standard_normal((64, 96))).astype(dtype)
    plain = np.asarray(squares.on("trn2")(a))
    other = np.asarray(squares.with_transformations("squares-on-vector").on("trn2")(a))
    assert plain.tobytes() == other.tobytes()


def test_copies_are_shared():
    @nki.jit
    def products(a):
        x, parts = nl.load(a), []
        for _ in range(6):
            bank, copy = tile((96, 96), buffer=nl.psum), tile((96, 96))
            nisa.nc_matmul(dst=bank, stationary=x, moving=x)
            nisa.tensor_copy(dst=copy, src=bank)
            parts.append(copy)
        for part in parts[1:]:
            nisa.tensor_tensor(dst=parts[0], data1=parts[0], data2=part, op=nl.add)
        return stored(parts[0])

    traced = products.with_transformations("balance-copies").trace(SPEC, target="trn2")
    engines = {
        op.values[-1]
        for op in operations(traced.bodies[0])
        if op.row.name == "tensor_copy" and op.values[1].storage.memory is Memory.psum
    }
    assert engines >= {Engine.scalar}
    a = np.random.default_rng(0).standard_normal((64, 96), dtype=np.float32)
    shared = products.with_transformations("balance-copies").on("trn2")(a)
    np.testing.assert_array_equal(shared, products.on("trn2")(a))


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
