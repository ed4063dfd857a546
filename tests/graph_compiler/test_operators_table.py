"""The operator table: nothing missing, nothing left out of a row."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from graph_compiler.hlo.operators import BUILDERS, FAMILIES, OPERATORS, REFUSED, operator
from graph_compiler.hlo.proto_fields import MESSAGES
from isa.errors import NeuronError

# `neuronx-cc list-operators --framework XLA` (SDK page "NeuronX Compiler operators").
LISTED_TEXT = """
Abs Add Allgather Allreduce Atan2 Batchnorm Batchnormgrad Batchnorminference BitcastConvertType
Broadcast BroadcastInDim Ceil Clamp Compare Concatenate Constant ConstantLiteral
ConvertElementType Cos Customcall Div Dot DotGeneral DynamicUpdateSlice Eq Exp Floor Gather Ge
GetTupleElement Gt Iota Le Log LogicalAnd LogicalNot Lt Max Min Mul Ne Neg Pad Pow Reduce Reshape
Rev RngBitGenerator RngUniform Rsqrt Scatter Select SelectAndScatter ShiftRightLogical Sign Sin
Slice Sqrt Sub Tanh Transpose Tuple
"""
LISTED = LISTED_TEXT.split()

OPCODES_OF_MODELS = Path(__file__).resolve().parents[3] / "shared" / "facts" / "graph_ops.csv"


def test_every_listed_operator_has_a_row() -> None:
    assert len(LISTED) == 62
    assert [name for name in LISTED if name not in BUILDERS] == []


def test_every_opcode_of_the_model_files_has_a_row() -> None:
    if not OPCODES_OF_MODELS.exists():
        pytest.skip(f"no {OPCODES_OF_MODELS}")
    with OPCODES_OF_MODELS.open() as file:
        opcodes = [row["opcode"] for row in csv.DictReader(file)]
    assert [opcode for opcode in opcodes if opcode not in OPERATORS] == []


V1_TEXT = """
add abs all-gather all-reduce all-to-all and atan2 batch-norm-grad batch-norm-inference
batch-norm-training bitcast bitcast-convert broadcast call cbrt ceil clamp collective-broadcast
collective-permute compare complex concatenate conditional constant convert convolution copy
copy-done copy-start cosine count-leading-zeros custom-call divide dot dynamic-slice
dynamic-update-slice erf exponential exponential-minus-one floor gather get-tuple-element imag iota
is-finite log log-plus-one logistic map maximum minimum mulhi multiply negate not opt-barrier or pad
parameter partition-id popcnt power real reduce reduce-precision reduce-scatter reduce-window
remainder reshape reverse rng rng-bit-generator round-nearest-afz round-nearest-even rsqrt scan
scatter select select-and-scatter shift-left shift-right-arithmetic shift-right-logical sign sine
slice sort sqrt subtract tan tanh topk transpose triangular-solve tuple while xor
"""
"""What the graph compiler sets out to have: the opcodes of the models, the rest of the list above,
and shift-right-arithmetic, expm1, logistic, round-afz, cbrt, tan, erf, popcnt, clz,
reduce-precision, conditional, map, copies, bitcast, triangular-solve, mulhi and scan."""


def test_every_opcode_that_was_set_out_has_a_row() -> None:
    opcodes = V1_TEXT.split()
    assert len(opcodes) == len(set(opcodes)) == 96
    assert [opcode for opcode in opcodes if opcode not in OPERATORS] == []


def test_each_of_the_other_opcodes_says_why_it_is_left_out() -> None:
    assert set(REFUSED) & set(OPERATORS) == set()
    for opcode, reason in REFUSED.items():
        with pytest.raises(NeuronError) as caught:
            operator(opcode, f"{opcode} `x`")
        assert caught.value.code == "hlo-not-supported"
        assert f"{opcode} `x`" in caught.value.what and caught.value.why == reason


def test_a_builder_belongs_to_one_row() -> None:
    builders = [builder for row in OPERATORS.values() for builder in row.builders]
    assert len(builders) == len(set(builders))


def test_every_row_is_complete() -> None:
    fields = {field.name for field in MESSAGES["HloInstructionProto"]}
    for opcode, row in OPERATORS.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", opcode)
        assert row.__doc__ and len(row.__doc__) > 10, opcode
        assert set(row.attributes) <= fields, (opcode, set(row.attributes) - fields)
        least, most = row.arity
        assert most is None or 0 <= least <= most, opcode
        assert row.link().startswith("https://openxla.org/"), opcode
        for method in ("infer", "evaluate"):
            owners = [base.__name__ for base in row.__mro__ if method in vars(base)]
            assert owners[0] != "HloOperator", (opcode, method)


def test_files_of_the_table_name_their_rows_once() -> None:
    modules = {module.__name__ for module in FAMILIES}
    assert {row.__module__ for row in OPERATORS.values()} <= modules


def test_jaxlib_knows_every_opcode() -> None:
    """The opcodes that XLA parses are the spelling of record; the table has or refuses each."""
    hlo = pytest.importorskip("jaxlib._hlo", reason="jaxlib is not installed")
    known = {name[1:].lower() for name in dir(hlo.HloOpcode) if name.startswith("k")}
    assert len(known) == len(OPERATORS) + len(REFUSED)
    renamed = {
        "cosine": "cos",
        "sine": "sin",
        "exponential": "exp",
        "exponential-minus-one": "expm1",
        "log-plus-one": "log1p",
        "count-leading-zeros": "clz",
        "popcnt": "populationcount",
        "opt-barrier": "optimizationbarrier",
    }
    spelled = {renamed.get(opcode, opcode).replace("-", "") for opcode in (*OPERATORS, *REFUSED)}
    assert spelled == known


def test_an_unknown_opcode_is_named_with_its_neighbour() -> None:
    with pytest.raises(NeuronError) as caught:
        operator("transpos")
    assert caught.value.code == "hlo-unknown-opcode"
    assert "transpose" in caught.value.hint
