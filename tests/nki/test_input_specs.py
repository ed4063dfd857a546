"""Tensors and values on the command line: what the grammar accepts, makes and refuses."""

from __future__ import annotations

import json
import shlex

import pytest

from isa.errors import NeuronError
from nki.cli import application
from nki.cli.input_specs import read_arguments, read_input, read_inputs
from nki.cli.output_files import save_arrays


@pytest.mark.parametrize("text", ["normal(128,64):float32", "(4,8):int8", "@x.npy", "ones(3)"])
def test_a_tensor_is_no_argument(text) -> None:
    with pytest.raises(NeuronError) as raised:
        read_arguments([f"a={text}"])
    assert raised.value.hint == f"Tensors are inputs: --input 'a={text}'."


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("=ones(2)", 0, "name"),
        ("a", 1, "`=`"),
        ("a=", 2, "normal"),
        ("a=gauss(2)", 2, "normal, uniform"),
        ("a=ones", 6, "`(`"),
        ("a=()", 3, "dimension"),
        ("a=ones(())", 9, "dimension"),
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


def test_arguments_are_literals() -> None:
    texts = ["a=1", "b=1.5", "c=true", "d=None", "e=word", "f='1'", "g=(1,2)", "h=x=y", "i=ones"]
    expected = {"a": 1, "b": 1.5, "c": True, "d": None, "e": "word", "f": "1", "g": (1, 2)}
    assert read_arguments(texts) == {**expected, "h": "x=y", "i": "ones"}
    with pytest.raises(NeuronError, match="twice"):
        read_arguments(["a=1", "a=2"])


def test_inputs_keep_their_order() -> None:
    assert list(read_inputs(["b=ones(1)", "a=ones(1)"], {})) == ["b", "a"]


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


def test_bounds_alone_take_the_sizes_of_a_container(gather, capsys):
    container = gather("(32,8)")
    capsys.readouterr()
    options = ["--input", "rows=randint(0,31)", "--input", "scale=normal(scale=2)"]
    assert application.run(["profile", container, "--json", *options]) == 0
    inputs = {i["name"]: i for i in json.loads(capsys.readouterr().out)["inputs"]}
    assert inputs["rows"]["shape"] == [4, 1] and inputs["rows"]["dtype"] == "int32"
    assert inputs["scale"]["shape"] == [4, 1] and inputs["scale"]["dtype"] == "float32"


@pytest.mark.parametrize("text", ["a=randint(0,2)(4,8)", "a=randint(4,8,0,2)"])
def test_options_without_names_want_sizes_in_parentheses(text) -> None:
    with pytest.raises(NeuronError) as raised:
        read_inputs([text], {})
    assert "randint((128,512),0,2)" in raised.value.hint
