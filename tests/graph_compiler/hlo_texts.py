"""HLO text of tests, and random shapes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from graph_compiler import parse_text
from graph_compiler.hlo import PRIMITIVE_TYPES, Instruction, Record, Shape
from graph_compiler.hlo.types import FILE_TYPES

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


def one(line: str, *before: str, rest: str = "") -> Instruction:
    """The instruction of a line, after others that it uses."""
    lines = "\n  ".join([*before, f"ROOT {line}"])
    return parse_text(f"HloModule m\n{rest}\nENTRY main {{\n  {lines}\n}}\n").entry.root


X = "x = f32[4,6]{1,0} parameter(0)"


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


names = st.text(min_size=1, max_size=12)


CALLEE = "f { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }"
