"""HLO text: reads what XLA prints, and print and parse are inverses of each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_compiler import from_proto, parse_text, print_text, to_proto
from graph_compiler.hlo import PRIMITIVE_TYPES, Computation, Instruction, Module, Record, Shape
from graph_compiler.hlo.text import attribute_words
from graph_compiler.hlo.text_scan import quote, string, string_bytes
from graph_compiler.hlo.text_values import parse_literal, parse_shape, show_literal, show_shape
from graph_compiler.hlo.types import FILE_TYPES

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


def one(line: str, *before: str, rest: str = "") -> Instruction:
    """The instruction of a line, after others that it uses."""
    lines = "\n  ".join([*before, f"ROOT {line}"])
    return parse_text(f"HloModule m\n{rest}\nENTRY main {{\n  {lines}\n}}\n").entry.root


X = "x = f32[4,6]{1,0} parameter(0)"
INDEX = "i = s32[2]{0} parameter(1)"
CALLEE = "f { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }"

FORMS: list[tuple[str, str, dict[str, Any]]] = [
    ("transpose(x)", "dimensions={1,0}", {"dimensions": (1, 0)}),
    ("broadcast(x)", "dimensions={}", {}),
    ("iota()", "iota_dimension=1", {"dimensions": (1,)}),
    (
        "slice(x)",
        "slice={[1:4:2], [0:6]}",
        {
            "slice_dimensions": (
                Record("SliceDimensions", start=1, limit=4, stride=2),
                Record("SliceDimensions", limit=6, stride=1),
            )
        },
    ),
    (
        "pad(x, x)",
        "padding=-1_2_3x0_0",
        {
            "padding_config": Record(
                "PaddingConfig",
                dimensions=(
                    Record(
                        "PaddingConfigDimension",
                        edge_padding_low=-1,
                        edge_padding_high=2,
                        interior_padding=3,
                    ),
                    Record("PaddingConfigDimension"),
                ),
            )
        },
    ),
    ("get-tuple-element(x)", "index=0", {}),
    ("get-tuple-element(x)", "index=3", {"tuple_index": 3}),
    ("dynamic-slice(x)", "dynamic_slice_sizes={1,2}", {"dynamic_slice_sizes": (1, 2)}),
    (
        "reduce-window(x, x)",
        "window={size=1x2 stride=1x3 pad=0_0x1_-1 lhs_dilate=2x1 rhs_dilate=1x4 rhs_reversal=0x1}",
        {
            "window": Record(
                "Window",
                dimensions=(
                    Record("WindowDimension", size=1, stride=1, base_dilation=2, window_dilation=1),
                    Record(
                        "WindowDimension",
                        size=2,
                        stride=3,
                        padding_low=1,
                        padding_high=-1,
                        window_dilation=4,
                        base_dilation=1,
                        window_reversal=True,
                    ),
                ),
            )
        },
    ),
    (
        "compare(x, x)",
        "direction=LT, type=TOTALORDER",
        {"comparison_direction": "LT", "comparison_type": "TOTALORDER"},
    ),
    (
        "compare(i, i)",
        "direction=EQ",
        {"comparison_direction": "EQ", "comparison_type": "SIGNED"},
    ),
    (
        "dot(x, x)",
        "lhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_batch_dims={0}, "
        "rhs_contracting_dims={1}, operand_precision={highest,default}",
        {
            "dot_dimension_numbers": Record(
                "DotDimensionNumbers",
                lhs_contracting_dimensions=(1,),
                rhs_contracting_dimensions=(1,),
                lhs_batch_dimensions=(0,),
                rhs_batch_dimensions=(0,),
            ),
            "precision_config": Record("PrecisionConfig", operand_precision=("HIGHEST", "DEFAULT")),
        },
    ),
    (
        "dot(x, x)",
        "lhs_contracting_dims={}, rhs_contracting_dims={}, algorithm=dot_bf16_bf16_f32",
        {
            "dot_dimension_numbers": Record("DotDimensionNumbers"),
            "precision_config": Record(
                "PrecisionConfig",
                operand_precision=("DEFAULT", "DEFAULT"),
                algorithm="ALG_DOT_BF16_BF16_F32",
            ),
        },
    ),
    ("rng-bit-generator(x)", "algorithm=rng_default", {}),
    ("rng-bit-generator(x)", "algorithm=rng_philox", {"rng_algorithm": "RNG_PHILOX"}),
    ("rng(x, x)", "distribution=rng_uniform", {"distribution": "RNG_UNIFORM"}),
    ("fft(x)", "fft_type=FFT, fft_length={6}", {"fft_length": (6,)}),
    ("fft(x)", "fft_type=IRFFT, fft_length={6}", {"fft_type": "IRFFT", "fft_length": (6,)}),
    ("topk(x)", "k=5, largest=true", {"k": 5, "largest": True}),
    ("reduce-precision(x)", "exponent_bits=5, mantissa_bits=0", {"exponent_bits": 5}),
    (
        "batch-norm-training(x, x, x)",
        "epsilon=0.001, feature_index=0",
        {"epsilon": pytest.approx(0.001)},
    ),
    (
        "triangular-solve(x, x)",
        "left_side=true, lower=true, transpose_a=NO_TRANSPOSE",
        {
            "triangular_solve_options": Record(
                "TriangularSolveOptions", left_side=True, lower=True, transpose_a="NO_TRANSPOSE"
            )
        },
    ),
    ("cholesky(x)", "lower=true", {"cholesky_options": Record("CholeskyOptions", lower=True)}),
    (
        "exponential(x)",
        "result_accuracy={mode=highest}",
        {"result_accuracy": Record("ResultAccuracy", mode="HIGHEST")},
    ),
    (
        "exponential(x)",
        "result_accuracy={tolerance={atol=0.5,rtol=0.0,ulps=2}}",
        {
            "result_accuracy": Record(
                "ResultAccuracy", tolerance=Record("Tolerance", atol=0.5, ulps=2)
            )
        },
    ),
    (
        "collective-permute(x)",
        "channel_id=3, source_target_pairs={{0,1},{1,0}}",
        {
            "channel_id": 3,
            "source_target_pairs": (
                Record("SourceTarget", target=1),
                Record("SourceTarget", source=1),
            ),
        },
    ),
    (
        "all-gather(x)",
        "dimensions={0}, channel_id=1, replica_groups={{0,2},{1,3}}, use_global_device_ids=true",
        {
            "dimensions": (0,),
            "channel_id": 1,
            "use_global_device_ids": True,
            "collective_device_list": Record(
                "CollectiveDeviceListProto",
                replica_groups=(
                    Record("ReplicaGroup", replica_ids=(0, 2)),
                    Record("ReplicaGroup", replica_ids=(1, 3)),
                ),
            ),
        },
    ),
    (
        "all-gather(x)",
        "dimensions={0}, replica_groups=[2,4]<=[4,2]T(1,0)",
        {
            "dimensions": (0,),
            "iota_collective_device_list": Record(
                "IotaReplicaGroupListProto",
                num_replica_groups=2,
                num_devices_per_group=4,
                iota_reshape_dims=(4, 2),
                iota_transpose_perm=(1, 0),
            ),
        },
    ),
    (
        "all-gather(x)",
        "dimensions={0}, replica_groups=mesh['a'=2,'b'=4] {'b','a'}",
        {
            "dimensions": (0,),
            "mesh_axes_replica_group_list": Record(
                "MeshAxesReplicaGroupListProto",
                mesh=Record(
                    "MeshProto",
                    axes=(
                        Record("MeshAxis", name="a", size=2),
                        Record("MeshAxis", name="b", size=4),
                    ),
                ),
                axes=(Record("AxisRefProto", mesh_axis_index=1), Record("AxisRefProto")),
            ),
        },
    ),
    (
        "ragged-dot(x, x, i)",
        "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, "
        "rhs_group_dims={0}",
        {
            "ragged_dot_dimension_numbers": Record(
                "RaggedDotDimensionNumbers",
                dot_dimension_numbers=Record(
                    "DotDimensionNumbers",
                    lhs_contracting_dimensions=(1,),
                    rhs_contracting_dimensions=(1,),
                ),
                lhs_ragged_dimensions=(0,),
                rhs_group_dimensions=(0,),
            ),
            "precision_config": Record("PrecisionConfig", operand_precision=("DEFAULT",) * 2),
        },
    ),
    (
        "domain(x)",
        'domain={kind="sharding", entry={replicated}, exit={maximal device=1}}',
        {
            "domain_entry_sharding": Record("OpSharding"),
            "domain_exit_sharding": Record(
                "OpSharding",
                type="MAXIMAL",
                tile_assignment_dimensions=(1,),
                tile_assignment_devices=(1,),
            ),
        },
    ),
    ("negate(x)", "sharding={replicated}", {"sharding": Record("OpSharding")}),
    (
        "negate(x)",
        "sharding={devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}",
        {
            "sharding": Record(
                "OpSharding",
                type="OTHER",
                tile_assignment_dimensions=(2, 1, 2),
                iota_reshape_dims=(2, 2),
                iota_transpose_perm=(1, 0),
                replicate_on_last_tile_dim=True,
            )
        },
    ),
    (
        "negate(x)",
        "sharding={devices=[2,1,2]0,1,2,3 last_tile_dims={manual, replicated}}",
        {
            "sharding": Record(
                "OpSharding",
                type="OTHER",
                tile_assignment_dimensions=(2, 1, 2),
                tile_assignment_devices=(0, 1, 2, 3),
                last_tile_dims=("MANUAL", "REPLICATED"),
            )
        },
    ),
    (
        "negate(x)",
        "sharding={{manual}, {devices=[2,1]0,1 shard_like 3}}",
        {
            "sharding": Record(
                "OpSharding",
                type="TUPLE",
                tuple_shardings=(
                    Record("OpSharding", type="MANUAL"),
                    Record(
                        "OpSharding",
                        type="OTHER",
                        tile_assignment_dimensions=(2, 1),
                        tile_assignment_devices=(0, 1),
                        is_shard_group=True,
                        shard_group_id=3,
                        shard_group_type="LIKE",
                    ),
                ),
            )
        },
    ),
    (
        "negate(x)",
        'frontend_attributes={a="1, \\"2\\"",b.c={x = <["dp"=2]>}}',
        {
            "frontend_attributes": Record(
                "FrontendAttributes", map={"a": '1, "2"', "b.c": '{x = <["dp"=2]>}'}
            )
        },
    ),
    ("negate(x)", 'backend_config={"a":[1,{}]}', {"backend_config": b'{"a":[1,{}]}'}),
    ("negate(x)", 'backend_config="a\\"b\\n\\377"', {"backend_config": b'a"b\n\xff'}),
]


@pytest.mark.parametrize(("call", "words", "expected"), FORMS, ids=lambda value: str(value)[:40])
def test_forms_of_attributes(call: str, words: str, expected: dict[str, Any]) -> None:
    instruction = one(f"y = f32[4,6]{{1,0}} {call}, {words}", X, INDEX)
    assert instruction.attributes == expected
    assert ", ".join(attribute_words(instruction)) == words


def test_a_layout_of_numbers_without_an_order_survives_the_way_through_text() -> None:
    details = Record("LayoutProto", element_size_in_bits=4)
    shape = Shape("f32", (4,), (), (), (), details)
    text = "HloModule m\nENTRY e {\n x = f32[4] parameter(0)\n ROOT y = f32[4] negate(x)\n}"
    module = parse_text(text)
    module.entry.root.shape = shape
    data = to_proto(module)
    assert to_proto(parse_text(print_text(from_proto(data)))) == data


def test_an_attribute_without_text_ends_with_its_line() -> None:
    text = """HloModule scalar

ENTRY %e (x: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] pad(%x, %x), padding=
  ROOT %z = f32[] negate(%y)
}
"""
    module = parse_text(text)
    assert [item.opcode for item in module.instructions()] == ["parameter", "pad", "negate"]
    assert print_text(module, exact=False).partition("ENTRY")[2] == text.partition("ENTRY")[2]
    data = to_proto(module)
    assert to_proto(parse_text(print_text(from_proto(data)))) == data


def test_convolutions_state_what_text_leaves_out() -> None:
    line = (
        "y = f32[4,6]{1,0} convolution(x, x), window={size=3 pad=1_1}, "
        "dim_labels=b0f_0io->bf0, feature_group_count=2"
    )
    instruction = one(line, X)
    numbers = instruction.attributes["convolution_dimension_numbers"]
    assert (numbers.input_batch_dimension, numbers.input_spatial_dimensions) == (0, (1,))
    assert (numbers.input_feature_dimension, numbers.kernel_output_feature_dimension) == (2, 2)
    assert (numbers.output_feature_dimension, numbers.output_spatial_dimensions) == (1, (2,))
    assert instruction.attributes["feature_group_count"] == 2
    assert instruction.attributes["batch_group_count"] == 1
    assert instruction.attributes["precision_config"].operand_precision == ("DEFAULT", "DEFAULT")
    assert f"y = f32[4,6]{{1,0}} convolution(x, x), {', '.join(attribute_words(instruction))}" == (
        line
    )


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("y = f32[] reduce(x, x), dimensions={0,1}, to_apply=f", ["f"]),
        ("y = f32[4,6] while(x), condition=g, body=f", ["f", "g"]),
        ("y = f32[4,6] select-and-scatter(x, x, x), select=g, scatter=f", ["g", "f"]),
        ("y = f32[4,6] conditional(p, x, x), true_computation=g, false_computation=f", ["g", "f"]),
        ("y = f32[4,6] conditional(x, x, x), branch_computations={f, g, f}", ["f", "g", "f"]),
        (
            'y = f32[] custom-call(x), custom_call_target="t", called_computations={f, g}',
            ["f", "g"],
        ),
        ("y = f32[4,6] fusion(x), kind=kLoop, calls=f", ["f"]),
        ("y = f32[4,6] call(x), to_apply=f", ["f"]),
    ],
)
def test_called_computations_stand_in_their_places(line: str, names: list[str]) -> None:
    both = CALLEE + "\n" + CALLEE.replace("f {", "g {", 1)
    instruction = one(line, X, "p = pred[] parameter(1)", rest=both)
    assert [item.name for item in instruction.called] == names
    module = parse_text(
        f"HloModule m\n{both}\nENTRY main {{ {X}\n p = pred[] parameter(1)\n{line}}}"
    )
    assert [item.name for item in parse_text(print_text(module)).entry.root.called] == names


def test_long_and_short_forms_are_the_same() -> None:
    short = parse_text(
        "HloModule m\nENTRY e { x = f32[2]{0} parameter(0) ROOT y = f32[2]{0} add(x, x) }"
    )
    long = parse_text(
        """HloModule m, is_scheduled=true, entry_computation_layout={(f32[2]{0})->f32[2]{0}}
// a comment
ENTRY %e (x: f32[2]) -> f32[2] { /* another */
  %x = f32[2]{0} parameter(0)
  ROOT %y = f32[2]{0} add(f32[2]{0} %x, /*index=1*/f32[2]{0} %x), control-predecessors={%x}
}, execution_thread="main"
"""
    )
    assert [repr(item) for item in long.entry.instructions] == [
        repr(item) for item in short.entry.instructions
    ]
    assert long.entry.root.control_predecessors == [long.entry.instructions[0]]
    assert long.config == {"is_scheduled": "true"}
    assert long.entry.attributes == {"execution_thread": "main"}
    assert print_text(parse_text(print_text(long))) == print_text(long)


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

names = st.text(min_size=1, max_size=12)
dimensions = st.lists(st.integers(0, 5), max_size=3).map(tuple)
element_types = st.sampled_from(sorted(t for t in FILE_TYPES if PRIMITIVE_TYPES[t].is_array))


@st.composite
def array_shapes(draw: st.DrawFn) -> Shape:
    sizes = draw(dimensions)
    order = draw(st.none() | st.permutations(range(len(sizes))).map(tuple)) if sizes else None
    flags = draw(st.tuples(*[st.booleans()] * len(sizes)))
    return Shape(draw(element_types), sizes, (), order, flags if any(flags) else ())


shapes = st.recursive(
    array_shapes() | st.just(Shape("token")),
    lambda inner: st.lists(inner, max_size=7).map(Shape.tuple_of),
)


@given(shapes)
def test_shapes_are_read_as_shown(shape: Shape) -> None:
    # An empty tuple has the form of an empty argument list and the meaning of a tuple.
    assert parse_shape(show_shape(shape)) == shape


@given(st.text() | st.binary())
def test_strings_are_read_as_quoted(value: str | bytes) -> None:
    quoted = quote(value)
    assert quoted.isascii() and quoted.isprintable()
    assert (string(quoted) if isinstance(value, str) else string_bytes(quoted)) == value


@settings(max_examples=60, deadline=None)
@given(st.data(), array_shapes())
def test_constants_are_read_as_shown(data: st.DataObject, shape: Shape) -> None:
    dtype = shape.numpy_dtype()
    count = int(np.prod(shape.dimensions))
    bits = data.draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    array = np.frombuffer(bits, np.uint8)
    if shape.element_type == "pred":
        array = (array & 1).view(np.bool_)
    elif shape.primitive.bits < 8:
        sign = -1 if shape.primitive.kind == "signed" else 1
        array = (sign * (array & 1).astype(np.int8)).astype(dtype)
    elif shape.element_type == "f8e8m0fnu":
        array = np.maximum(array, 1).view(dtype)  # ml_dtypes rounds its least value up.
    else:
        array = array.view(dtype)
    array = array.reshape(shape.dimensions)
    again = parse_literal(show_literal(array, shape), shape)
    assert again.dtype == dtype and again.shape == shape.dimensions
    if shape.primitive.is_integer or shape.element_type == "pred":
        assert again.tobytes() == array.tobytes()
    else:
        wide = np.complex128 if shape.primitive.is_complex else np.float64
        assert np.array_equal(again.astype(wide), array.astype(wide), equal_nan=True)


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
