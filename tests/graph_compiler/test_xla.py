"""XLA accepts what we write: protos and text of graphs made in memory compile and run equally."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance_models import MODELS
from xla_reference import run_xla

from graph_compiler import Computation, Instruction, Module, Shape, evaluate, load, parse_text
from graph_compiler.frontends import stablehlo, xla
from graph_compiler.hlo import Record
from graph_compiler.hlo.proto import from_proto, to_proto
from graph_compiler.hlo.text import print_text
from isa.errors import NeuronError

hlo = pytest.importorskip("jaxlib._hlo", reason="jax is not installed")

LARGE = 400_000
"""Bytes of a model file that a default run leaves out."""


def row_maxima() -> Module:
    """max(x + y) of every row and x + y, made node by node; nothing is named or numbered."""

    def array(*dimensions: int) -> Shape:
        return Shape("f32", dimensions)

    a, b = (Instruction("parameter", array(), parameter_number=n) for n in range(2))
    larger = Instruction("maximum", array(), [a, b])
    x, y = (Instruction("parameter", array(2, 3), parameter_number=n) for n in range(2))
    total = Instruction("add", array(2, 3), [x, y])
    lowest = Instruction("constant", array(), attributes={"literal": np.array(-np.inf, np.float32)})
    fold = Computation("fold", [a, b, larger])
    rows = Instruction(
        "reduce", array(2), [total, lowest], attributes={"dimensions": (1,)}, called=[fold]
    )
    root = Instruction("tuple", Shape.tuple_of([array(2), array(2, 3)]), [rows, total])
    return Module("made", [fold, Computation("main", [x, y, total, lowest, rows, root])])


def contraction() -> Module:
    """A batched dot and a transposition, with attributes that are messages."""
    x = Instruction("parameter", Shape("f32", (2, 3, 4)))
    y = Instruction("parameter", Shape("f32", (2, 4, 5)), parameter_number=1)
    numbers = Record(
        "DotDimensionNumbers",
        lhs_contracting_dimensions=(2,),
        rhs_contracting_dimensions=(1,),
        lhs_batch_dimensions=(0,),
        rhs_batch_dimensions=(0,),
    )
    product = Instruction(
        "dot", Shape("f32", (2, 3, 5)), [x, y], attributes={"dot_dimension_numbers": numbers}
    )
    root = Instruction(
        "transpose", Shape("f32", (5, 2, 3)), [product], attributes={"dimensions": (2, 0, 1)}
    )
    return Module("contraction", [Computation("main", [x, y, product, root])])


def inputs_for(module: Module) -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    return [
        random.integers(-4, 5, item.shape.dimensions).astype(np.float32)
        for item in module.parameters
    ]


def same(one: list[np.ndarray[Any, Any]], other: list[np.ndarray[Any, Any]]) -> bool:
    return len(one) == len(other) and all(map(np.array_equal, one, other))


@pytest.mark.parametrize("made", [row_maxima, contraction])
def test_xla_runs_the_protos_and_texts_of_graphs_made_in_memory(made: Any) -> None:
    module, inputs = made(), inputs_for(made())
    expected = evaluate(module, *inputs)
    assert same(xla.run(module, *inputs), expected)
    assert same(xla.run(from_proto(to_proto(module)), *inputs), expected)
    assert same(xla.run(parse_text(print_text(made())), *inputs), expected)
    assert same(run_xla(print_text(module), *inputs), expected)
    assert same(run_xla(print_text(module, exact=False), *inputs), expected)


SAME_NAMES = """HloModule names
fold {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y)
}
ENTRY main {
  x = f32[4] parameter(0)
  r.1 = f32[] constant(1)
  ROOT r = f32[] reduce(x, r.1), dimensions={0}, to_apply=fold
}
"""


def test_names_may_stand_in_several_computations() -> None:
    """In text and here; what XLA gets has each once, and the module keeps its own."""
    module = parse_text(SAME_NAMES)
    before = to_proto(module)
    (output,) = xla.run(module, np.arange(4, dtype=np.float32))
    assert output == 7 and to_proto(module) == before
    assert "stablehlo.reduce" in stablehlo.from_module(module)
    module.make_names_unique()
    names = [item.name for item in module.instructions()]
    assert len(set(names)) == len(names) and names[:3] == ["x", "y", "r"]
    assert "r.1" in names and "x.1" in names


def test_a_file_without_shapes_for_the_host_stays_as_it_is() -> None:
    """Other writers leave them out; XLA wants them, the round trip does not."""
    module = row_maxima()
    module.conventions -= {"host_program_shape"}
    data = to_proto(module)
    assert to_proto(from_proto(data)) == data
    assert to_proto(parse_text(print_text(from_proto(data)))) == data
    with pytest.raises(Exception, match="program shape"):
        hlo.XlaComputation(data).get_hlo_module()
    again = from_proto(data)
    again.conventions |= {"host_program_shape"}
    assert same(xla.run(again, *inputs_for(again)), evaluate(module, *inputs_for(module)))


@pytest.mark.skipif(not MODELS.exists(), reason=f"no model files in {MODELS}")
@pytest.mark.parametrize(
    "path", sorted(MODELS.glob("*.hlo.pb")), ids=lambda path: path.name.partition(".")[0]
)
def test_xla_reads_every_model_that_we_write(path: Path, pytestconfig: pytest.Config) -> None:
    """As many instructions of every opcode as we read, from our proto and from our text."""
    if path.stat().st_size > LARGE and not pytestconfig.getoption("--all-conformance"):
        pytest.skip("--all-conformance runs it")
    module = load(path, check=False)
    parsed = hlo.hlo_module_from_text(print_text(module))
    from_text = from_proto(parsed.as_serialized_hlo_module_proto())
    computation = hlo.XlaComputation(to_proto(module)).get_hlo_module()
    from_bytes = from_proto(computation.as_serialized_hlo_module_proto())
    wanted = sorted((item.opcode, str(item.shape.plain())) for item in module.instructions())
    for read in (from_text, from_bytes):
        found = sorted((item.opcode, str(item.shape.plain())) for item in read.instructions())
        assert found == wanted


def test_a_graph_goes_through_stablehlo_and_back() -> None:
    module = contraction()
    program = stablehlo.from_module(module)
    assert "stablehlo.dot_general" in program
    inputs = inputs_for(module)
    assert same(evaluate(stablehlo.load(program), *inputs), evaluate(module, *inputs))


def test_a_graph_that_stablehlo_cannot_state_is_refused() -> None:
    text = "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT r = f32[2] bogus(x)\n}"
    with pytest.raises(NeuronError) as caught:
        stablehlo.from_module(parse_text(text))
    assert caught.value.code == "front-end" and "bogus" in caught.value.what


def test_without_jaxlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(NeuronError) as caught:
        xla.run(contraction(), *inputs_for(contraction()))
    assert caught.value.code == "missing-extra" and "opennki[jax]" in caught.value.hint
