"""Tensors and values on the command line: what the grammar accepts, makes and refuses."""

from __future__ import annotations

import json
import shlex

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa.dtypes import DTYPES
from isa.errors import NeuronError
from nki.cli import application
from nki.cli.input_specs import KINDS, make_array, read_arguments, read_input, read_inputs
from nki.cli.output_files import save_arrays


@st.composite
def specifications(draw):
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    kind = draw(st.sampled_from(KINDS))
    floats = [name for name, row in DTYPES.items() if row.is_float and row.lanes == 1]
    dtype = draw(st.sampled_from(floats if kind in ("normal", "uniform") else sorted(DTYPES)))
    return kind, shape, dtype


@given(specifications())
def test_generated_inputs_have_the_stated_shape_and_dtype(specification) -> None:
    kind, shape, dtype = specification
    spec = read_input(f"x={kind}({','.join(map(str, shape))}):{dtype}", {})
    assert (spec.name, spec.kind, spec.shape, spec.dtype) == ("x", kind, shape, dtype)
    array = make_array(spec, 3)
    assert array.shape == shape and array.dtype == DTYPES[dtype].numpy
    assert array.tobytes() == make_array(spec, 3).tobytes()
    expected = {
        "zeros": lambda: np.zeros(shape),
        "ones": lambda: np.ones(shape),
        "arange": lambda: np.arange(np.prod(shape)).reshape(shape),
    }
    if kind in expected:
        wanted = expected[kind]().astype(DTYPES[dtype].words)
        assert array.tobytes() == wanted.tobytes()


def test_random_inputs_depend_on_seed_and_name_only() -> None:
    def make(text, seed):
        return make_array(read_input(text, {}), seed)

    first = make("a=normal(64,64):float32", 0)
    assert abs(first.mean()) < 0.1 and abs(first.std() - 1) < 0.1
    assert not np.array_equal(first, make("b=normal(64,64):float32", 0))
    assert not np.array_equal(first, make("a=normal(64,64):float32", 1))
    uniform = make("a=uniform(64,64):float32", 0)
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.05


def test_values_and_files_are_inputs(tmp_path) -> None:
    array = make_array(read_input("a=[[1,2],[3,4]]", {}), 0)
    assert array.dtype == np.int32 and array.tolist() == [[1, 2], [3, 4]]
    assert make_array(read_input("a=[0.5]:bfloat16", {}), 0).dtype == ml_dtypes.bfloat16
    stored = np.array([[1.5, -2.0]], ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", stored)
    loaded = make_array(read_input(f"a=@{tmp_path / 'x.npy'}:bfloat16", {}), 0)
    np.testing.assert_array_equal(loaded, stored)
    np.save(tmp_path / "y.npy", np.array([1, 2], np.int64))
    assert make_array(read_input(f"a=@{tmp_path / 'y.npy'}:float16", {}), 0).dtype == np.float16


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("=ones(2)", 0, "name"),
        ("a", 1, "`=`"),
        ("a=", 2, "normal"),
        ("a=gauss(2)", 2, "normal, uniform"),
        ("a=ones", 6, "`(`"),
        ("a=ones()", 7, "dimension"),
        ("a=ones(2,0)", 9, "at least 1"),
        ("a=ones(2;3)", 8, "`,` or `)`"),
        ("a=ones(2", 8, "`,` or `)`"),
        ("a=ones(M)", 7, "symbol M"),
        ("a=ones(2):float", 10, "float32"),
        ("a=ones(2):", 10, "dtype"),
        ("a=ones(2)x", 9, "end"),
        ("a=normal(2):int8", 16, "floats"),
        ("a=[1,2", 2, "list"),
        ("a=@", 3, "path"),
    ],
)
def test_a_bad_specification_is_pointed_at(text, column, words) -> None:
    with pytest.raises(NeuronError) as raised:
        read_input(text, {})
    error = raised.value
    assert error.code == "bad-input-spec" and words in error.what
    assert error.notes[0] == text and error.notes[1] == " " * column + "^"
    assert any("NAME=KIND(SIZE,...)" in note for note in error.notes), "the grammar is shown"


def test_ragged_values_are_refused() -> None:
    with pytest.raises(NeuronError, match="full array"):
        make_array(read_input("a=[[1],[2,3]]", {}), 0)


def test_arguments_are_literals() -> None:
    texts = ["a=1", "b=1.5", "c=true", "d=None", "e=word", "f='1'", "g=(1,2)", "h=x=y"]
    expected = {"a": 1, "b": 1.5, "c": True, "d": None, "e": "word", "f": "1", "g": (1, 2)}
    assert read_arguments(texts) == {**expected, "h": "x=y"}
    with pytest.raises(NeuronError, match="twice"):
        read_arguments(["a=1", "a=2"])


def test_inputs_keep_their_order() -> None:
    assert list(read_inputs(["b=ones(1)", "a=ones(1)"], {})) == ["b", "a"]


def test_an_array_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(NeuronError) as caught:
        make_array(read_input("x=normal(99999999999,64)", {}), 0)
    assert caught.value.code == "bad-input-spec" and "99999999999" in caught.value.what


def test_a_folder_that_cannot_be_made_is_refused(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NeuronError) as caught:
        save_arrays(str(tmp_path / "file" / "folder"), {})
    assert caught.value.code == "not-writable"


GATHER = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def picked(table, rows, scale):
    tile = nl.ndarray((rows.shape[0], table.shape[1]), table.dtype, nl.sbuf)
    nisa.dma_copy(dst=tile, src=table.vector_select(0, nl.load(rows)))
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=nl.load(scale)[0:4, 0:1])
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out
"""


@pytest.fixture
def gather(tmp_path):
    """Makes a container of a kernel with a float, an index and a float32 input."""
    file = tmp_path / "gather.py"
    file.write_text(GATHER)

    def compiled(table):
        inputs = [f"table={table}:bfloat16", "rows=(4,1):int32", "scale=(4,1):float32"]
        command = ["compile", f"{file}:picked", "-o", str(tmp_path / "k.neff")]
        options = [part for text in inputs for part in ("--input", text)]
        symbols = ["--symbol", "M:max=64,multiple_of=16"] if "M" in table else []
        assert application.run([*command, *options, *symbols]) == 0
        return str(tmp_path / "k.neff")

    return compiled


@pytest.mark.parametrize("command", ["run", "profile"])
def test_inputs_of_a_container_are_made_from_its_declarations(command, gather, capsys):
    container = gather("(32,8)")
    capsys.readouterr()
    assert (
        application.run([command, container, "--json", "--input", "scale=ones(4,1):float32"]) == 0
    )
    inputs = {i["name"]: i["source"] for i in json.loads(capsys.readouterr().out)["inputs"]}
    assert inputs == {
        "table": "normal(32,8):bfloat16",
        "rows": "zeros(4,1):int32",
        "scale": "ones(4,1):float32",
    }


def test_the_hint_for_an_input_of_a_container_fits(gather, capsys):
    container = gather("(M,8)")
    capsys.readouterr()
    assert application.run(["run", container, "--json"]) == 2
    hint = json.loads(capsys.readouterr().out)["error"]["hint"]
    assert hint == "--input 'table=normal(16,8):bfloat16'"
    assert application.run(["run", container, *shlex.split(hint)]) == 0
    capsys.readouterr()
    options = ["--input", "table=ones(16,8):bfloat16", "--input", "rows=(4,1):int32"]
    assert application.run(["run", container, "--json", *options]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["hint"] == "Say which values: rows=zeros(4,1):int32."
