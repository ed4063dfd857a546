"""Shape and type rules: what each operator refuses, by name and with the numbers."""

from __future__ import annotations

import numpy as np
import pytest
from operator_values import module_text
from random_operations import REDUCERS, reducer

from graph_compiler import parse_text, verify
from graph_compiler.hlo import Instruction, Record, Shape
from graph_compiler.hlo.operators import check_counts, operator
from isa.errors import NeuronError

SUM = reducer("f32", REDUCERS["add"])
LESS = SUM.replace("reducer", "less").replace(
    "f32[] add(a, b)", "pred[] compare(a, b), direction=LT"
)
SHAPE, TYPE = "hlo-shape-mismatch", "hlo-type-mismatch"

# (code, a part of the message, module)
REFUSED = {
    "add of two sizes": (SHAPE, "f32[2]", module_text("add", "f32[3]", ["f32[3]", "f32[2]"])),
    "add of two types": (TYPE, "s32[3]", module_text("add", "f32[3]", ["f32[3]", "s32[3]"])),
    "and of floats": (TYPE, "f32", module_text("and", "f32[3]", ["f32[3]", "f32[3]"])),
    "floor of integers": (TYPE, "s32", module_text("floor", "s32[3]", ["s32[3]"])),
    "popcnt of floats": (TYPE, "f32", module_text("popcnt", "f32[3]", ["f32[3]"])),
    "select by s32": (
        TYPE,
        "s32[3]",
        module_text("select", "f32[3]", ["s32[3]", "f32[3]", "f32[3]"]),
    ),
    "clamp by vectors": (
        SHAPE,
        "f32[2]",
        module_text("clamp", "f32[3]", ["f32[2]", "f32[3]", "f32[]"]),
    ),
    "reshape": (SHAPE, "6 elements", module_text("reshape", "f32[5]", ["f32[2,3]"])),
    "broadcast of a size": (
        SHAPE,
        "f32[1]",
        module_text("broadcast", "f32[4]", ["f32[1]"], "dimensions={0}"),
    ),
    "transpose twice": (
        SHAPE,
        "(0, 0)",
        module_text("transpose", "f32[2,2]", ["f32[2,2]"], "dimensions={0,0}"),
    ),
    "slice outside": (
        SHAPE,
        "[1:9:1]",
        module_text("slice", "f32[8]", ["f32[4]"], "slice={[1:9]}"),
    ),
    "concatenate": (
        SHAPE,
        "f32[3,2]",
        module_text("concatenate", "f32[5,2]", ["f32[2,3]", "f32[3,2]"], "dimensions={0}"),
    ),
    "pad below nothing": (
        SHAPE,
        "-1",
        module_text("pad", "f32[1]", ["f32[2]", "f32[]"], "padding=-2_-1"),
    ),
    "reduce of two types": (
        TYPE,
        "s32[]",
        module_text(
            "reduce",
            "f32[]",
            ["f32[3]", "s32[]"],
            "dimensions={0}, to_apply=reducer",
            SUM,
        ),
    ),
    "reduce to another kind of type": (
        TYPE,
        "pred[]",
        module_text(
            "reduce",
            "pred[]",
            ["f32[3]", "f32[]"],
            "dimensions={0}, to_apply=less",
            LESS,
        ),
    ),
    "map of another type": (
        TYPE,
        "f32[]",
        module_text("map", "f32[3]", ["s8[3]", "f32[3]"], "dimensions={0}, to_apply=reducer", SUM),
    ),
    "sort by a comparison of another type": (
        TYPE,
        "f32[]",
        module_text("sort", "s8[3]", ["s8[3]"], "dimensions={0}, to_apply=less", LESS),
    ),
    "reduce outside": (
        SHAPE,
        "(2,)",
        module_text(
            "reduce", "f32[3]", ["f32[3]", "f32[]"], "dimensions={2}, to_apply=reducer", SUM
        ),
    ),
    "dot": (
        SHAPE,
        "[3]",
        module_text(
            "dot",
            "f32[2,5]",
            ["f32[2,3]", "f32[4,5]"],
            "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        ),
    ),
    "convolution": (
        SHAPE,
        "3 input features",
        module_text(
            "convolution",
            "f32[1,2,4]",
            ["f32[1,3,4]", "f32[2,2,1]"],
            "window={size=1}, dim_labels=bf0_oi0->bf0",
        ),
    ),
    "gather slices": (
        SHAPE,
        "[5]",
        module_text(
            "gather",
            "f32[2,5]",
            ["f32[4]", "s32[2,1]"],
            "offset_dims={1}, collapsed_slice_dims={}, start_index_map={0},"
            " index_vector_dim=1, slice_sizes={5}",
        ),
    ),
    "gather by floats": (
        TYPE,
        "f32",
        module_text(
            "gather",
            "f32[2,1]",
            ["f32[4]", "f32[2,1]"],
            "offset_dims={1}, collapsed_slice_dims={}, start_index_map={0},"
            " index_vector_dim=1, slice_sizes={1}",
        ),
    ),
    "gather of slices without elements": (
        SHAPE,
        "[0, 3]",
        module_text(
            "gather",
            "f32[2,3]",
            ["f32[2,3]", "s32[2]"],
            "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},"
            " index_vector_dim=1, slice_sizes={0,3}",
        ),
    ),
    "gather that starts in a batching dimension": (
        SHAPE,
        "(1, 1)",
        module_text(
            "gather",
            "f32[5,2]",
            ["f32[4,5]", "s32[1,5]"],
            "offset_dims={1}, collapsed_slice_dims={}, start_index_map={1},"
            " operand_batching_dims={1}, start_indices_batching_dims={1},"
            " index_vector_dim=0, slice_sizes={2,1}",
        ),
    ),
    "gather by a batch of its index vectors": (
        SHAPE,
        "(1, 1)",
        module_text(
            "gather",
            "f32[4]",
            ["f32[2,3,3]", "s32[4,2]"],
            "offset_dims={}, collapsed_slice_dims={1,2}, start_index_map={1,2},"
            " operand_batching_dims={0}, start_indices_batching_dims={1},"
            " index_vector_dim=1, slice_sizes={1,1,1}",
        ),
    ),
    "scatter of two types": (
        TYPE,
        "s32[2]",
        module_text(
            "scatter",
            "f32[4]",
            ["f32[4]", "s32[2]", "s32[2]"],
            "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},"
            " index_vector_dim=1, to_apply=reducer",
            SUM,
        ),
    ),
    "topk beyond": (
        SHAPE,
        "9",
        module_text("topk", "(f32[9], s32[9])", ["f32[4]"], "k=9, largest=true"),
    ),
    "wrong result": (SHAPE, "f32[3]", module_text("negate", "f32[4]", ["f32[3]"])),
    "wrong result type": (TYPE, "f64", module_text("negate", "f64[3]", ["f32[3]"])),
    "triangular solve": (
        SHAPE,
        "f32[3,2]",
        module_text(
            "triangular-solve",
            "f32[3,2]",
            ["f32[3,2]", "f32[3,2]"],
            "left_side=true, lower=true, unit_diagonal=false, transpose_a=NO_TRANSPOSE",
        ),
    ),
    "rng state": (
        SHAPE,
        "u64[3]",
        module_text("rng-bit-generator", "(u64[3], u32[4])", ["u64[3]"], "algorithm=rng_three_fry"),
    ),
    "permute to one twice": (
        SHAPE,
        "[1, 1]",
        module_text(
            "collective-permute", "f32[4]", ["f32[4]"], "source_target_pairs={{0,1},{2,1}}"
        ),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_shapes_and_types_are_refused(case: str) -> None:
    code, part, text = REFUSED[case]
    with pytest.raises(NeuronError) as caught:
        verify(parse_text(text))
    assert caught.value.code == code, caught.value
    assert part in caught.value.what
    assert "`r`" in caught.value.what, "the instruction is named"


def test_the_model_line_is_named_where_it_is_known() -> None:
    operand = Instruction("parameter", Shape("f32", (2,)), name="x")
    other = Instruction("parameter", Shape("f32", (3,)), name="y", parameter_number=1)
    metadata = Record("OpMetadata", source_file="model.py", source_line=12)
    add = Instruction("add", Shape("f32", (2,)), [operand, other], "sum", metadata=metadata)
    with pytest.raises(NeuronError, match=r"model\.py:12"):
        operator("add").infer(add)


def test_numbers_of_operands_are_stated() -> None:
    x = Instruction("parameter", Shape("f32", (2,)), name="x")
    with pytest.raises(NeuronError) as caught:
        check_counts(Instruction("add", Shape("f32", (2,)), [x], "lonely"), operator("add"))
    assert caught.value.code == "hlo-invalid" and "takes 2" in caught.value.why


def test_inferred_shapes_need_no_stated_result() -> None:
    """The rule of a dot whose instruction only states its element type."""
    x = Instruction("parameter", Shape("bf16", (2, 3, 4)), name="x")
    y = Instruction("parameter", Shape("bf16", (2, 4, 5)), name="y", parameter_number=1)
    numbers = Record(
        "DotDimensionNumbers",
        lhs_contracting_dimensions=(2,),
        rhs_contracting_dimensions=(1,),
        lhs_batch_dimensions=(0,),
        rhs_batch_dimensions=(0,),
    )
    dot = Instruction(
        "dot", Shape("f32"), [x, y], "d", attributes={"dot_dimension_numbers": numbers}
    )
    assert operator("dot").infer(dot) == Shape("f32", (2, 3, 5))
    assert np.einsum("bik,bkj->bij", np.ones((2, 3, 4)), np.ones((2, 4, 5))).shape == (2, 3, 5)
