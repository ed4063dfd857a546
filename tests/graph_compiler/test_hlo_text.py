"""HLO text: reads what XLA prints, and print and parse are inverses of each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hlo_texts import FORMS, names, shapes
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_compiler import from_proto, parse_text, print_text, to_proto
from graph_compiler.hlo import Computation, Instruction, Module, Record, Shape

MODELS = Path(__file__).resolve().parents[3] / "shared" / "conformance" / "models"

needs_models = pytest.mark.skipif(not MODELS.exists(), reason=f"no model files in {MODELS}")

SLOW = frozenset({"sd_unet_train_adamw", "resnet50_train_sgd", "llama_prefill_bf16"})
"""Models of megabytes of text; only in a complete run."""


@needs_models
@pytest.mark.parametrize("path", sorted(MODELS.glob("*.hlo.pb")), ids=lambda path: path.name)
def test_models_survive_the_way_through_text(path: Path, request: pytest.FixtureRequest) -> None:
    if path.name.split(".")[0] in SLOW and not request.config.getoption("--all-conformance"):
        pytest.skip("large: --all-conformance runs it")
    data = path.read_bytes()
    text = print_text(from_proto(data))
    assert to_proto(parse_text(text)) == data
    # Ids are all that XLA's form has no place for in these.
    assert "fields=" not in text and "without=" not in text


@needs_models
@pytest.mark.parametrize("path", sorted(MODELS.glob("*.hlo.txt")), ids=lambda path: path.name)
def test_text_of_xla_is_the_graph_of_its_proto(path: Path) -> None:
    text = parse_text(path.read_text())
    proto = from_proto(path.with_suffix("").with_suffix(".hlo.pb").read_bytes())
    assert [item.name for item in text.computations] == [item.name for item in proto.computations]
    assert text.entry.name == proto.entry.name
    assert text.attributes["host_program_shape"] == proto.attributes["host_program_shape"]
    for ours, theirs in zip(text.instructions(), proto.instructions(), strict=True):
        assert (ours.name, ours.opcode, ours.shape) == (theirs.name, theirs.opcode, theirs.shape)
        assert [item.name for item in ours.operands] == [item.name for item in theirs.operands]
        assert [item.name for item in ours.called] == [item.name for item in theirs.called]
        found, stated = dict(ours.attributes), dict(theirs.attributes)
        if "literal" in stated:
            # Text rounds NaNs and bfloat16; the value is the same.
            assert np.array_equal(
                found.pop("literal").astype(float), stated.pop("literal").astype(float), True
            )
        assert found == stated, ours.name


def test_our_text_is_the_text_of_xla() -> None:
    """Letter for letter what jax 0.10.2 prints for x.at[0].add(1) * 0.1, but for the tables."""
    text = """HloModule jit_f, entry_computation_layout={(f32[4]{0})->f32[4]{0}}

%region_0.1 (a.1: f32[], b.1: f32[]) -> f32[] {
  %a.1 = f32[] parameter(0)
  %b.1 = f32[] parameter(1)
  ROOT %add.1 = f32[] add(%a.1, %b.1)
}

ENTRY %main.2 (x.1: f32[4]) -> f32[4] {
  %x.1 = f32[4]{0} parameter(0), metadata={op_name="x"}
  %constant.3 = s32[] constant(0)
  %broadcast_in_dim.1 = s32[1]{0} broadcast(%constant.3), dimensions={}
  %constant.4 = f32[] constant(0.1)
  %scatter-add.1 = f32[4]{0} scatter(%x.1, %broadcast_in_dim.1, %constant.4), \
update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, \
index_vector_dim=0, indices_are_sorted=true, unique_indices=true, to_apply=%region_0.1
  %broadcast.5 = f32[4]{0} broadcast(%constant.4), dimensions={}
  ROOT %mul.6 = f32[4]{0} multiply(%scatter-add.1, %broadcast.5), metadata={op_name="jit(f)/mul"}
}
"""
    assert print_text(parse_text(text)) == text
    assert print_text(parse_text(text), exact=False) == text


def test_a_layout_of_numbers_without_an_order_survives_the_way_through_text() -> None:
    details = Record("LayoutProto", element_size_in_bits=4)
    shape = Shape("f32", (4,), (), (), (), details)
    text = "HloModule m\nENTRY e {\n x = f32[4] parameter(0)\n ROOT y = f32[4] negate(x)\n}"
    module = parse_text(text)
    module.entry.root.shape = shape
    data = to_proto(module)
    assert to_proto(parse_text(print_text(from_proto(data)))) == data


def test_header_aliases_and_source_tables() -> None:
    text = """HloModule m, \
input_output_alias={ {0}: (1, {}, may-alias), {1}: (0, {2}, must-alias) }, \
buffer_donor={ (2, {}) }, entry_computation_layout={(f32[2]{0:T(8,128)S(1)})->f32[2]{0}}

FileNames
1 "/model/\\303\\251.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=17 end_line=17 column=2 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=1 parent_frame_id=2}

ENTRY %e (x: f32[2]) -> f32[2] {
  ROOT %x = f32[2]{0} parameter(0), metadata={op_name="x" stack_frame_id=2}
}
"""
    module = parse_text(text)
    assert module.source_of(module.entry.root) == "/model/é.py:17"
    entries = module.attributes["input_output_alias"].entries
    assert [(entry.output_shape_index, entry.parameter_number) for entry in entries] == [
        ((0,), 1),
        ((1,), 0),
    ]
    assert entries[1].kind == "MUST_ALIAS" and entries[1].parameter_shape_index == (2,)
    layout = module.attributes["host_program_shape"].parameters[0].layout_details
    assert layout.tiles[0].dimensions == (8, 128) and layout.memory_space == 1
    frames = module.attributes["stack_frame_index"].stack_frames
    assert [frame.parent_frame_id for frame in frames] == [0, 1]
    assert print_text(module) == text


def test_what_text_cannot_say_stands_in_comments() -> None:
    x = Instruction("parameter", Shape("f32", (2,), layout=(0,)), name="x", id=77)
    nan = np.array([0x7FA00001, 0xFFC00000], np.uint32).view(np.float32)
    c = Instruction(
        "constant", Shape("f32", (2,), layout=(0,)), name="c", attributes={"literal": nan}, id=5
    )
    y = Instruction(
        "add",
        Shape("f32", (2,), layout=(0,), unknown=b"\xc8\x3e\x01"),
        [x, c],
        name='strange "name"',
        attributes={"rng_algorithm": 99, "delta": 0},
        metadata=Record("OpMetadata", profile_type=(1, 2), op_name="a\nb"),
        id=1 << 40,
        unknown=b"\xc0\x3e\x05",
    )
    module = Module("m", [Computation("main", [x, c, y], id=3)], id=9, wrappers=(b"", b"\x20\x01"))
    data = to_proto(module)
    text = print_text(module)
    assert "/*@ id=9" in text and '%"strange \\"name\\""' in text
    again = parse_text(text)
    assert to_proto(again) == data
    assert again.entry.root.id == 1 << 40 and again.wrappers == (b"", b"\x20\x01")
    assert again.entry.instructions[1].attributes["literal"].tobytes() == nan.tobytes()


def test_conventions_of_other_writers_survive() -> None:
    plain = frozenset[str]()
    x = Instruction("parameter", Shape("f32", (2,)), name="x", id=1)
    y = Instruction("negate", Shape("f32", (2,), dynamic_dimensions=(False,)), [x], name="y", id=2)
    module = Module("m", [Computation("main", [x, y], id=1)], conventions=plain)
    data = to_proto(module)
    # No layout is stated at all, so none lacks its padding.
    assert from_proto(data).conventions <= {"tail_padding"}
    assert to_proto(from_proto(data)) == data
    assert to_proto(parse_text(print_text(from_proto(data)))) == data


# Properties.


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_generated_graphs_survive_the_way_through_text(data: st.DataObject) -> None:
    """Instructions that need not make sense, with any of the attributes of the forms above."""
    instructions: list[Instruction] = []
    for number in range(data.draw(st.integers(1, 6))):
        _, _, attributes = data.draw(st.sampled_from(FORMS[:15] + FORMS[16:20]))
        operands = (
            data.draw(st.lists(st.sampled_from(instructions), max_size=7)) if instructions else []
        )
        instructions.append(
            Instruction(
                data.draw(st.sampled_from(["add", "dot", "custom-call", "broadcast", "compare"])),
                data.draw(shapes),
                operands,
                name=f"{data.draw(names)}.{number}",
                attributes=dict(attributes),
                metadata=data.draw(
                    st.none() | names.map(lambda name: Record("OpMetadata", op_name=name))
                ),
                id=number + 1,
                unknown=data.draw(st.sampled_from([b"", b"\xc0\x3e\x05"])),
            )
        )
    computation = Computation(
        data.draw(names), instructions, data.draw(st.sampled_from(instructions))
    )
    module = Module(data.draw(names), [computation])
    stated = to_proto(module)
    assert to_proto(from_proto(stated)) == stated
    assert to_proto(parse_text(print_text(from_proto(stated)))) == stated


@pytest.mark.parametrize("name", ["%", 'a %"b', "f32[] %", '"', "%%"])
def test_operands_with_names_that_look_like_text(name: str) -> None:
    """Graphs of protos name instructions as they like."""
    body = "x = f32[] parameter(0)\n ROOT y = f32[] negate(x)"
    module = parse_text(f"HloModule m\nENTRY e {{ {body} }}")
    module.entry.parameters[0].name = name
    for exact in (True, False):
        again = parse_text(print_text(module, exact=exact))
        assert again.entry.root.operands[0].name == name
