"""Graph nodes, the verifier, and loading by content."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import graph_compiler
from graph_compiler import Computation, Instruction, Module, Shape, load, parse_text, verify
from graph_compiler.frontends.sniff import sniff
from graph_compiler.hlo import Record
from graph_compiler.hlo.order import callees_first
from isa.errors import NeuronError

MODELS = Path(__file__).resolve().parents[3] / "shared" / "conformance" / "models"

needs_models = pytest.mark.skipif(not MODELS.exists(), reason=f"no model files in {MODELS}")


# Types and records.


def test_importing_the_package_loads_no_heavy_library() -> None:
    heavy = "{'google.protobuf', 'ml_dtypes', 'sympy', 'jax', 'torch', 'scipy'}"
    code = f"import sys, graph_compiler; print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stdout + result.stderr


# Verifier.


def small() -> Module:
    return parse_text(
        """HloModule m
f { a = f32[] parameter(0)
    b = f32[] parameter(1)
    ROOT c = f32[] add(a, b), metadata={op_name="sum" source_file="model.py" source_line=7} }
ENTRY main {
  x = f32[4,6] parameter(0)
  y = f32[4,6] negate(x), metadata={op_name="neg" source_file="model.py" source_line=12}
  z = f32[] constant(0)
  ROOT r = f32[4] reduce(y, z), dimensions={1}, to_apply=f
}"""
    )


def refused(module: Module) -> NeuronError:
    with pytest.raises(NeuronError) as caught:
        verify(module)
    return caught.value


def test_a_good_graph_passes() -> None:
    verify(small())


def named(module: Module, name: str) -> Instruction:
    return next(item for item in module.instructions() if item.name == name)


@pytest.mark.parametrize(
    ("line", "changed", "code", "words"),
    [
        ("f32[4,6] negate", "f32[4,7] negate", "hlo-shape-mismatch", ["`y`", "model.py:12"]),
        ("f32[4,6] negate", "s32[4,6] negate", "hlo-type-mismatch", ["`y`", "s32[4,6]"]),
        ("f32[4,6] negate(x)", "f32[4,6] frobnicate(x)", "hlo-unknown-opcode", ["frobnicate"]),
        ("negate(x)", "negate(x, x)", "hlo-invalid", ["`y`", "2 operands"]),
        ("negate(x)", "negate()", "hlo-invalid", ["`y`", "0 operands"]),
        ("dimensions={1}", "dimensions={2}", "hlo-shape-mismatch", ["`r`"]),
        (", to_apply=f", "", "hlo-invalid", ["`r`", "0 called computations"]),
        ("f32[] add(a, b)", "s32[] add(a, b)", "hlo-type-mismatch", ["`c`", "model.py:7"]),
        ("b = f32[] parameter(1)", "b = f32[] parameter(2)", "hlo-invalid", ["[0, 2]"]),
        ("f32[4,6] parameter(0)", "f32[4,-6] parameter(0)", "hlo-invalid", ["`x`", "negative"]),
        ("f32[4,6] parameter(0)", "f32[4,<=6] parameter(0)", "hlo-not-supported", ["dynamic"]),
        (
            "x = f32[4,6] parameter(0)",
            "x = f32[1000000000000,6] parameter(0)",
            "hlo-too-large",
            ["`x`", "24000000000000 bytes"],
        ),
        (
            "f32[4,6] negate(x)",
            "f32[4,6] negate(x), control-predecessors={r}",
            "hlo-cycle",
            ["'y'"],
        ),
    ],
)
def test_bad_graphs_are_refused(line: str, changed: str, code: str, words: list[str]) -> None:
    from graph_compiler import print_text

    text = print_text(small(), exact=False).replace("%", "").replace("{1,0}", "")
    text = text.replace("f32[4]{0}", "f32[4]")
    assert line in text
    with pytest.raises(NeuronError) as caught:
        verify(parse_text(text.replace(line, changed)))
    error = caught.value
    assert error.code == code, error
    assert all(word in error.what for word in words), error.what


def test_values_of_other_computations_are_refused() -> None:
    module = small()
    named(module, "y").operands[0] = named(module, "a")
    error = refused(module)
    assert error.code == "hlo-invalid" and "'a' of another computation" in error.what


def test_names_and_ids_must_be_unique() -> None:
    module = small()
    named(module, "y").name = "x"
    assert "named 'x'" in refused(module).what
    module = small()
    named(module, "y").id = named(module, "x").id
    assert "have the id" in refused(module).what
    module = small()
    module.computations[0].name = "main"
    assert "named 'main'" in refused(module).what


def test_calls_stay_in_the_module_and_do_not_recur() -> None:
    module = small()
    module.computations.pop(0)
    assert "calls 'f', which is not in the module" in refused(module).what
    module = small()
    named(module, "c").called.append(module.computations[0])
    error = refused(module)
    assert error.code == "hlo-cycle" and "'f' calls itself" in error.what


def test_order_and_root() -> None:
    module = small()
    module.entry.instructions.reverse()
    assert "behind its user" in refused(module).what
    module = small()
    module.entry.root = named(module, "c")
    assert "root" in refused(module).what
    module = small()
    module.entry.instructions.append(named(module, "y"))
    assert "stands twice" in refused(module).what
    module = small()
    module.computations.reverse()
    assert [item.name for item in callees_first(module)] == ["f", "main"]


def test_missing_attributes_are_refused() -> None:
    x = Instruction("parameter", Shape("f32", (2, 2)), name="x", id=1)
    for opcode, operands in {
        "dot": [x, x],
        "slice": [x],
        "pad": [x, x],
        "convolution": [x, x],
        "gather": [x, x],
        "transpose": [x],
        "get-tuple-element": [x],
        "compare": [x, x],
        "constant": [],
        "iota": [],
        "all-gather": [x],
        "reduce-window": [x, x],
    }.items():
        bad = Instruction(opcode, Shape("f32", (2, 2)), operands, name="bad", id=2)
        module = Module("m", [Computation("main", [x, bad], id=1)])
        with pytest.raises(NeuronError) as caught:
            verify(module)
            pytest.fail(opcode)
        error = caught.value
        assert error.code.startswith("hlo-") and "bad" in error.what, (opcode, error)


def test_lines_of_the_model_come_from_the_table_of_the_module() -> None:
    module = small()
    table = Record(
        "StackFrameIndexProto",
        file_names=("net.py",),
        file_locations=(Record("FileLocation", file_name_id=1, line=42),),
        stack_frames=(Record("StackFrame", file_location_id=1),),
    )
    module.attributes["stack_frame_index"] = table
    bad = named(module, "r")
    bad.metadata = Record("OpMetadata", stack_frame_id=1)
    assert module.source_of(bad) == "net.py:42"
    bad.shape = Shape("f32", (5,))
    assert "from net.py:42" in refused(module).notes
    bad.metadata = Record("OpMetadata", stack_frame_id=9)
    assert module.source_of(bad) == ""


def test_a_deep_graph_needs_no_deep_stack() -> None:
    chain = [Instruction("parameter", Shape("f32", (2,)), name="x", id=1)]
    for number in range(2, 20_000):
        chain.append(Instruction("negate", Shape("f32", (2,)), chain[-1:], name=f"n{number}"))
    module = Module("m", [Computation("main", chain)])
    verify(module)
    chain[0].operands.append(chain[-1])
    assert refused(module).code == "hlo-cycle"


# Loading.


def test_formats_are_known_by_content(tmp_path: Path) -> None:
    module = small()
    text = graph_compiler.print_text(module)
    proto = graph_compiler.to_proto(module)
    assert sniff(text.encode()) == "text" and sniff(proto) == "proto"
    assert sniff(b"// made by hand\n/* HloModule x */ HloModule m") == "text"
    assert sniff(b"module @m {}") == "stablehlo" and sniff(b"ML\xefR\x0d") == "stablehlo"
    for name, data in (("proto.txt", proto), ("text.pb", text.encode())):
        path = tmp_path / name  # The name says nothing.
        path.write_bytes(data)
        for source in (path, str(path), data):
            assert graph_compiler.to_proto(load(source)) == proto


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "format-unknown"),
        (b"%PDF-1.7", "format-unknown"),
        (b"\x7fELF\x02\x01\x01\x00", "format-unknown"),
        (b"\x00" * 64, "format-unknown"),
        (b"HloModule \xff", "hlo-syntax"),
        (b"HloModule", "hlo-truncated"),
        (b"\n\x04main\x12\x7fmore", "hlo-truncated"),
    ],
)
def test_other_files_are_refused(data: bytes, code: str) -> None:
    with pytest.raises(NeuronError) as caught:
        load(data)
    assert caught.value.code == code


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.pb", tmp_path, "a\0b"):
        with pytest.raises(NeuronError) as caught:
            load(path)
        assert caught.value.code == "file-not-found"


def test_loading_verifies_unless_told_not_to() -> None:
    bad = graph_compiler.print_text(small()).replace("negate(", "frobnicate(").encode()
    with pytest.raises(NeuronError, match="frobnicate"):
        load(bad)
    assert named(load(bad, check=False), "y").opcode == "frobnicate"


@needs_models
@pytest.mark.parametrize("path", sorted(MODELS.glob("*.hlo.pb")), ids=lambda path: path.name)
def test_models_pass_the_verifier(path: Path) -> None:
    module = load(path)
    assert all(instruction.name for instruction in module.instructions())


@needs_models
def test_a_model_says_where_its_instructions_come_from() -> None:
    module = load(MODELS / "llama3_prefill_gqa_bf16.hlo.pb")
    lines = {module.source_of(instruction) for instruction in module.instructions()}
    assert any(line.partition(":")[2].isdigit() for line in lines)
