"""Every rule of the operation table accepts what its document allows and names what it does not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from isa.affine import Affine, Symbol, affine, polynomial
from isa.alu import ACTIVATIONS, ALU
from isa.enums import DgeMode, Engine, MatmulPerfMode, Memory, ReduceCommand
from isa.errors import CATALOGUE
from isa.fields import Kind
from isa.operations import OPERATIONS
from isa.rules import OperationCall, check_call
from isa.rules.matmul import engine_for_transpose
from isa.rules.movement import dge_mode
from isa.spec import defaults
from isa.target import resolve
from isa.wording import functions

SBUF, PSUM, HBM, SHARED = Memory.sbuf, Memory.psum, Memory.private_hbm, Memory.shared_hbm
M = polynomial(Symbol("M", 8192, multiple_of=128))
N = polynomial(Symbol("N", 100))


def tile(
    *shape, memory=SBUF, dtype="float32", offset=0, pitch=None, address=None, rows=None, part=None
):
    """An access with the attributes of the tile IR's; of the first `part` partitions only."""
    if pitch is None:
        pitch = 1
        for size in shape[1:]:
            pitch = pitch * size
    storage = SimpleNamespace(
        memory=memory, name="t", pitch=pitch, dtype=dtype, shape=shape, address=address
    )
    view = shape if part is None else (part, *shape[1:])
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return SimpleNamespace(
        storage=storage,
        shape=view,
        strides=tuple(strides),
        dtype=dtype,
        offset=offset,
        vector_offset=rows,
    )


def check(name, target="trn2", **given):
    row = OPERATIONS[name]
    values = dict.fromkeys(row.field_names) | defaults(row) | given
    assert set(values) == set(row.field_names)
    return check_call(row, tuple(values[n] for n in row.field_names), resolve(target))


def assert_refused(name, code, words, target="trn2", **given):
    violation = check(name, target, **given)
    assert violation is not None
    assert violation.code == code and words in violation.what, violation
    assert violation.code in CATALOGUE
    error = violation.error()
    assert error.why and error.hint


def assert_accepted(name, target="trn2", **given):
    assert check(name, target, **given) is None


MATMUL = {
    "dst": tile(64, 512, memory=PSUM),
    "stationary": tile(128, 64, dtype="bfloat16"),
    "moving": tile(128, 512, dtype="bfloat16"),
}
PAIRS = {
    "dst": tile(64, 512, memory=PSUM),
    "stationary": tile(128, 2, 64, dtype="float8_e5m2"),
    "moving": tile(128, 2, 512, dtype="float8_e4m3"),
    "perf_mode": MatmulPerfMode.double_row,
}
ROW_TILE = {
    "dst": tile(64, 512, memory=PSUM),
    "stationary": tile(64, 64, dtype="bfloat16"),
    "moving": tile(64, 512, dtype="bfloat16"),
    "tile_position": (64, 0),
    "tile_size": (64, 128),
}
ADD = {"dst": tile(128, 512), "data1": tile(128, 512), "data2": tile(128, 512), "op": ALU["add"]}
SCALE = {"dst": tile(64, 8), "data": tile(64, 8), "op0": ALU["multiply"], "operand0": 2.0}
COPY = {"dst": tile(128, 64), "src": tile(128, 64, memory=HBM)}
ACT = {"dst": tile(128, 64), "data": tile(128, 64), "op": ACTIVATIONS["exp"]}
IOTA = {"dst": tile(128, 2, 32, dtype="int32"), "pattern": ((32, 2), (1, 32))}
REDUCE = {"dst": tile(128, 4), "data": tile(128, 4, 8), "op": ALU["add"], "axis": (2,)}
TRANSPOSE = {"dst": tile(64, 128, memory=PSUM), "data": tile(128, 64)}
PREDICATED = {"dst": tile(8, 4), "src": tile(8, 4), "predicate": tile(8, 4, dtype="uint8")}
BARRIER = {"data": tile(8, 4, memory=SHARED), "cores": (0, 1)}
TRIPLE = {
    "dst": tile(8, 4),
    "data": tile(8, 4),
    "op0": ALU["add"],
    "operand0": 1.0,
    "op1": ALU["multiply"],
    "operand1": tile(8, 4),
}
SELECT = {
    "dst": tile(8, 4),
    "pattern": ((1, 4),),
    "channel_multiplier": 1,
    "on_true_tile": tile(8, 4),
    "on_false_value": 0.0,
}


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("nc_matmul", MATMUL),
        (
            "nc_matmul",
            MATMUL | {"tile_position": (0, 64), "tile_size": (128, 64)},
        ),
        ("nc_matmul", PAIRS),
        ("nc_matmul", ROW_TILE),
        (
            "nc_matmul",
            MATMUL | {"is_transpose": True, "dst": tile(64, 512, memory=PSUM, dtype="bfloat16")},
        ),
        ("tensor_tensor", ADD),
        ("tensor_tensor", ADD | {"data1": tile(128, 8, 64)}),
        ("tensor_scalar", SCALE),
        ("tensor_scalar", SCALE | {"operand0": tile(64, 1), "op1": ALU["add"], "operand1": 1}),
        ("dma_copy", COPY),
        ("dma_copy", COPY | {"src": tile(64, 128, memory=HBM, dtype="int32")}),
        ("dma_copy", {"dst": tile(M, 4, memory=HBM), "src": tile(4, M, memory=SHARED)}),
        ("activation", ACT | {"bias": tile(128, 1, dtype="bfloat16"), "scale": tile(128, 1)}),
        ("activation_reduce", ACT | {"reduce_op": ALU["add"], "reduce_res": tile(128, 1)}),
        ("iota", IOTA),
        ("tensor_reduce", REDUCE),
        ("tensor_reduce", REDUCE | {"axis": (-1,), "keepdims": True, "dst": tile(128, 4, 1)}),
        ("nc_transpose", TRANSPOSE),
        ("tensor_copy_predicated", PREDICATED | {"src": 0.0}),
        ("scalar_tensor_tensor", TRIPLE),
        ("affine_select", SELECT),
        ("core_barrier", BARRIER),
        ("memset", {"dst": tile(8, 4, dtype="int8"), "value": -128}),
        ("memset", {"dst": tile(8, 4, dtype="bfloat16"), "value": 0}),
        ("register_load", {"dst": SimpleNamespace(number=1), "src": tile(1, 1)}),
        ("register_store", {"src": SimpleNamespace(number=1), "dst": tile(1, memory=HBM)}),
        ("tensor_copy", {"dst": tile(32, 8, offset=96 * 8), "src": tile(32, 8, memory=PSUM)}),
        ("storage_begin", {"dst": tile(M, 8, memory=HBM)}),
    ],
)
def test_legal_calls(name, given):
    assert_accepted(name, **given)
    # What a row resolves for itself breaks none of its rules.
    row, target = OPERATIONS[name], resolve("trn2")
    values = dict.fromkeys(row.field_names) | defaults(row) | given
    resolved = row.resolve(tuple(values[n] for n in row.field_names), target)
    call = OperationCall(row.field_names, resolved, target)
    assert [rule.check(call) for rule in row.rules] == [None] * len(row.rules)


@pytest.mark.parametrize(
    ("name", "code", "words", "given"),
    [
        ("nc_matmul", "contraction-mismatch", "K = 64",
         MATMUL | {"moving": tile(64, 512, dtype="bfloat16")}),
        ("nc_matmul", "shape-mismatch", "give [64, 256]",
         MATMUL | {"moving": tile(128, 256, dtype="bfloat16")}),
        ("nc_matmul", "tile-limit", "moving has 1024 free elements (N), the limit on trn2 is 512",
         MATMUL | {"moving": tile(128, 1024, dtype="bfloat16"),
                   "dst": tile(64, 1024, memory=PSUM)}),
        ("nc_matmul", "tile-limit", "128 partitions (K), the limit on trn2 is 64",
         MATMUL | {"tile_position": (0, 0), "tile_size": (64, 128)}),
        ("nc_matmul", "wrong-memory", "stationary (t) is in psum, it must be in sbuf",
         MATMUL | {"stationary": tile(128, 64, memory=PSUM)}),
        ("nc_matmul", "wrong-memory", "dst (t) is in sbuf", MATMUL | {"dst": tile(64, 512)}),
        ("nc_matmul", "dtype-not-allowed", "stationary is float32, moving is bfloat16",
         MATMUL | {"stationary": tile(128, 64)}),
        ("nc_matmul", "dtype-not-allowed", "dst is bfloat16, on trn2 it must be float32",
         MATMUL | {"dst": tile(64, 512, memory=PSUM, dtype="bfloat16")}),
        ("nc_matmul", "dtype-not-allowed", "moving is int32",
         MATMUL | {"moving": tile(128, 512, dtype="int32")}),
        ("nc_matmul", "value-not-allowed", "tile_size is ()", MATMUL | {"tile_position": (0, 0)}),
        ("nc_matmul", "value-not-allowed", "row tile of 128 at 64",
         MATMUL | {"tile_position": (64, 0), "tile_size": (128, 128)}),
        ("nc_matmul", "dtype-not-allowed", "stationary is bfloat16 with perf_mode=double_row",
         MATMUL | {"perf_mode": MatmulPerfMode.double_row}),
        ("nc_matmul", "shape-mismatch", "stationary has shape [128, 64], expected [K, 2, columns]",
         PAIRS | {"stationary": tile(128, 64, dtype="float8_e5m2")}),
        ("nc_matmul", "value-not-allowed", "together with is_transpose",
         PAIRS | {"is_transpose": True}),
        ("nc_matmul", "value-not-allowed", "a column tile of 64 with perf_mode=double_row",
         PAIRS | {"tile_position": (0, 64), "tile_size": (128, 64)}),
        ("nc_matmul", "tile-limit", "moving has 600 free elements (N)",
         PAIRS | {"moving": tile(128, 2, 600, dtype="float8_e4m3"),
                  "dst": tile(64, 600, memory=PSUM)}),
        ("nc_matmul", "dtype-not-allowed", "dst is float16 with is_transpose=True",
         MATMUL | {"is_transpose": True, "dst": tile(64, 512, memory=PSUM, dtype="float16")}),
        ("nc_matmul", "value-not-allowed", "moving starts at partition 0, the tile at row 64",
         ROW_TILE | {"moving": tile(128, 512, dtype="bfloat16", part=64)}),
        ("nc_matmul", "value-not-allowed", "dst starts at partition 64, the tile at column 0",
         ROW_TILE | {"dst": tile(64, 512, memory=PSUM, address=(64, 0))}),
        ("tensor_tensor", "shape-mismatch", "dst has 128 partitions, data2 has 64",
         ADD | {"data2": tile(64, 512)}),
        ("tensor_tensor", "shape-mismatch", "512 elements per partition, data1 has 256",
         ADD | {"data1": tile(128, 256)}),
        ("tensor_tensor", "wrong-memory", "data1 and data2 are both in psum",
         ADD | {"data1": tile(128, 512, memory=PSUM), "data2": tile(128, 512, memory=PSUM)}),
        ("tensor_tensor", "wrong-memory", "data1 (t) is in private_hbm, it must be in sbuf or psum",
         ADD | {"data1": tile(128, 512, memory=HBM)}),
        ("tensor_tensor", "partition-limit", "dst has 256 partitions, the limit is 128",
         ADD | {"dst": tile(256, 512)}),
        ("tensor_tensor", "partition-limit", "M (up to 8192) partitions",
         ADD | {"dst": tile(M, 512)}),
        ("tensor_tensor", "operator-not-allowed", "op is abs", ADD | {"op": ALU["abs"]}),
        ("tensor_tensor", "dtype-not-allowed", "op=bitwise_and needs an integer",
         ADD | {"op": ALU["bitwise_and"]}),
        ("tensor_tensor", "engine-not-allowed", "power does not run on the vector engine",
         ADD | {"op": ALU["power"], "engine": Engine.vector}),
        ("tensor_tensor", "engine-not-allowed", "which power needs",
         ADD | {"op": ALU["power"], "data1": tile(128, 512, memory=PSUM)}),
        ("tensor_tensor", "engine-not-allowed", "engine is scalar",
         ADD | {"engine": Engine.scalar}),
        ("tensor_tensor", "generation", "abs_max", ADD | {"op": ALU["abs_max"]}),
        ("tensor_tensor", "missing-argument", "data2", ADD | {"data2": None}),
        ("tensor_tensor", "not-a-tensor", "data2 is 3.0, expected a tensor", ADD | {"data2": 3.0}),
        ("tensor_tensor", "value-not-allowed", "op is 'add'", ADD | {"op": "add"}),
        ("tensor_tensor", "tile-limit", "bytes of a partition, sbuf has 229376",
         {n: tile(1, 60000) for n in ("dst", "data1", "data2")} | {"op": ALU["add"]}),
        ("tensor_tensor", "view-not-allowed", "32 partitions may start at 0, 32, 64, 96",
         ADD | {"dst": tile(32, 512, offset=512 * 16)}),
        ("tensor_tensor", "view-not-allowed", "from partition 32",
         ADD | {"dst": tile(64, 512, address=(32, 0))}),
        ("tensor_tensor", "view-not-allowed", "6 dimensions",
         ADD | {"dst": tile(1, 1, 1, 1, 1, 1)}),
        ("tensor_scalar", "shape-mismatch", "operand0 has shape [64, 2], expected [64, 1]",
         SCALE | {"operand0": tile(64, 2)}),
        ("tensor_scalar", "operator-not-allowed", "op0=multiply is arithmetic",
         SCALE | {"op1": ALU["bitwise_or"], "operand1": 1}),
        ("tensor_scalar", "missing-argument", "op0=multiply needs operand0",
         SCALE | {"operand0": None}),
        ("tensor_scalar", "value-not-allowed", "operand1 is given, but op1 is None",
         SCALE | {"operand1": 1.0}),
        ("tensor_scalar", "value-not-allowed", "op0=abs is unary",
         SCALE | {"op0": ALU["abs"], "operand0": 2.0}),
        ("tensor_scalar", "dtype-not-allowed", "operand0 is bfloat16, expected float32",
         SCALE | {"operand0": tile(64, 1, dtype="bfloat16")}),
        ("tensor_scalar", "dtype-not-allowed", "operand0 is 1.5, expected an integer",
         {"dst": tile(64, 8, dtype="int32"), "data": tile(64, 8, dtype="int32"),
          "op0": ALU["bitwise_or"], "operand0": 1.5}),
        ("tensor_scalar", "engine-not-allowed", "operators multiply, multiply",
         SCALE | {"engine": Engine.scalar, "op1": ALU["multiply"], "operand1": 1.0}),
        ("tensor_scalar", "engine-not-allowed", "rsqrt does not run on the vector engine",
         SCALE | {"engine": Engine.vector, "op0": ALU["rsqrt"], "operand0": 0}),
        ("scalar_tensor_tensor", "operator-not-allowed", "op0 is left_shift",
         TRIPLE | {"op0": ALU["left_shift"]}),
        ("scalar_tensor_tensor", "shape-mismatch", "operand1 has 6", TRIPLE | {
            "operand1": tile(8, 6)}),
        ("tensor_copy", "engine-not-allowed", "psum, which the gpsimd engine",
         {"dst": tile(8, 4), "src": tile(8, 4, memory=PSUM), "engine": Engine.gpsimd}),
        ("tensor_copy_predicated", "dtype-not-allowed", "predicate is float32",
         PREDICATED | {"predicate": tile(8, 4)}),
        ("tensor_copy_predicated", "dtype-not-allowed", "dst is float32, src is bfloat16",
         PREDICATED | {"src": tile(8, 4, dtype="bfloat16")}),
        ("tensor_reduce", "value-not-allowed", "axis is (1,)", REDUCE | {"axis": (1,)}),
        ("tensor_reduce", "value-not-allowed", "axis is (0, 1, 2)", REDUCE | {"axis": (0, 1, 2)}),
        ("tensor_reduce", "value-not-allowed", "axis is ()", REDUCE | {"axis": ()}),
        ("tensor_reduce", "shape-mismatch", "gives [128, 1]", REDUCE | {"axis": (1, 2)}),
        ("tensor_reduce", "operator-not-allowed", "op is power", REDUCE | {"op": ALU["power"]}),
        ("tensor_reduce", "operator-not-allowed", "negate=True",
         REDUCE | {"op": ALU["bitwise_or"], "negate": True}),
        ("activation", "operator-not-allowed", "reduce_op is maximum",
         ACT | {"reduce_op": ALU["maximum"]}),
        ("activation", "dtype-not-allowed", "bias is tfloat32",
         ACT | {"bias": tile(128, 1, dtype="tfloat32")}),
        ("activation", "dtype-not-allowed", "scale is bfloat16",
         ACT | {"scale": tile(128, 1, dtype="bfloat16")}),
        ("activation", "shape-mismatch", "reduce_res has shape [64, 1]",
         ACT | {"reduce_res": tile(64, 1)}),
        ("activation", "value-not-allowed", "load_reduce",
         ACT | {"reduce_cmd": ReduceCommand.load_reduce}),
        ("iota", "shape-mismatch", "covers 32 elements", IOTA | {"pattern": ((1, 32),)}),
        ("iota", "value-not-allowed", "has 5 [step, count]", IOTA | {"pattern": ((1, 2),) * 5}),
        ("iota", "value-not-allowed", "pattern is 7", IOTA | {"pattern": 7}),
        ("affine_select", "operator-not-allowed", "cmp_op is add", SELECT | {"cmp_op": ALU["add"]}),
        ("nc_transpose", "shape-mismatch", "is [64, 128]",
         TRANSPOSE | {"dst": tile(128, 64, memory=PSUM)}),
        ("nc_transpose", "wrong-memory", "on the tensor engine it must be in psum",
         TRANSPOSE | {"dst": tile(64, 128), "engine": Engine.tensor}),
        ("nc_transpose", "tile-limit", "128 partitions, the vector engine transposes at most 32",
         TRANSPOSE | {"dst": tile(64, 128)}),
        ("nc_transpose", "dtype-not-allowed", "dst is bfloat16, data is float32",
         TRANSPOSE | {"dst": tile(64, 128, memory=PSUM, dtype="bfloat16")}),
        ("dma_copy", "shape-mismatch", "8192 elements, src [128, 32] has 4096",
         COPY | {"src": tile(128, 32, memory=HBM)}),
        ("dma_copy", "wrong-memory", "dst (t) is in psum", COPY | {
            "dst": tile(128, 64, memory=PSUM)}),
        ("dma_copy", "generation", "priority=1", COPY | {"priority": 1}),
        ("dma_copy", "value-not-allowed", "priority is 7", COPY | {"priority": 7}),
        ("dma_copy", "dtype-not-allowed", "with dge_mode=hwdge",
         COPY | {"dge_mode": DgeMode.hwdge, "src": tile(128, 64, memory=HBM, dtype="bfloat16")}),
        ("dma_copy", "engine-not-allowed", "engine=scalar with dge_mode=unknown",
         COPY | {"engine": Engine.scalar}),
        ("dma_copy", "engine-not-allowed", "engine=sync with dge_mode=swdge",
         COPY | {"engine": Engine.sync, "dge_mode": DgeMode.swdge}),
        ("core_barrier", "value-not-allowed", "cores is (0, 1, 2)", BARRIER | {"cores": (0, 1, 2)}),
        ("core_barrier", "wrong-memory", "must be in sbuf or psum or shared_hbm",
         BARRIER | {"data": tile(8, 4, memory=HBM)}),
        ("memset", "value-not-allowed", "value is 1.5", {
            "dst": tile(8, 4, dtype="int32"), "value": 1.5}),
        ("memset", "value-not-allowed", "from -128 to 127", {
            "dst": tile(8, 4, dtype="int8"), "value": 128}),
        ("memset", "value-not-allowed", "value is 'x'", {"dst": tile(8, 4), "value": "x"}),
        ("register_load", "shape-mismatch", "expected one element",
         {"dst": SimpleNamespace(number=1), "src": tile(1, 2)}),
        ("register_load", "value-not-allowed", "dst is 3", {"dst": 3, "src": tile(1, 1)}),
    ],
)  # fmt: skip
def test_refused_calls(name, code, words, given):
    assert_refused(name, code, words, **given)


def test_generations():
    assert_refused("core_barrier", "generation", "not on trn1 (gen2)", "trn1", **BARRIER)
    assert_refused("activation", "generation", "the number bias=1.0", "trn1", **ACT, bias=1.0)
    assert_accepted("activation", "trn1", **ACT, bias=tile(128, 1))
    copy = {"dst": tile(8, 4), "src": tile(8, 4), "engine": Engine.scalar}
    assert_refused("tensor_copy", "generation", "scalar engine", "trn1", **copy)
    assert_accepted("tensor_copy", "trn2", **copy)
    assert_refused("dma_copy", "generation", "hwdge", "trn1", **COPY, dge_mode=DgeMode.hwdge)
    assert_accepted("dma_copy", "trn3", **COPY, priority=0)
    wide = MATMUL | {
        "moving": tile(128, 4096, dtype="bfloat16"),
        "dst": tile(64, 4096, memory=PSUM),
    }
    assert_refused("nc_matmul", "tile-limit", "512", "trn2", **wide)
    assert_accepted("nc_matmul", "trn3", **wide)
    half = MATMUL | {"dst": tile(64, 512, memory=PSUM, dtype="bfloat16")}
    assert_accepted("nc_matmul", "trn3", **half)
    small = MATMUL | {
        "stationary": tile(32, 32, dtype="bfloat16"),
        "moving": tile(32, 512, dtype="bfloat16"),
        "dst": tile(32, 512, memory=PSUM),
        "tile_position": (96, 0),
        "tile_size": (32, 64),
    }
    assert_accepted("nc_matmul", "trn2", **small)
    assert_refused("nc_matmul", "generation", "a row tile of 32", "trn1", **small)


def test_symbolic_sizes_are_limited_by_their_maximum():
    rows = {n: tile(N, 8) for n in ("dst", "data")}
    assert_accepted("reciprocal", **rows)
    mixed = {"dst": tile(N, 8), "data": tile(N % 64, 8)}
    assert_refused("reciprocal", "shape-mismatch", "data has N%64", **mixed)


def test_dynamic_start_partitions():
    quarter = affine(SimpleNamespace(number=1, lower=0, upper=3))
    assert_accepted("reciprocal", dst=tile(32, 8), data=tile(32, 8, offset=quarter * (32 * 8)))
    odd = tile(32, 8, offset=quarter * (16 * 8))
    assert_refused("reciprocal", "view-not-allowed", "from partition 16", dst=tile(32, 8), data=odd)
    inside = tile(32, 4, offset=quarter * 2 + 32 * 8, pitch=8)
    assert_accepted("reciprocal", dst=tile(32, 4), data=inside)
    unknown = Affine(0, ((SimpleNamespace(number=1, lower=None, upper=None), 3),))
    assert_accepted("reciprocal", dst=tile(32, 8), data=tile(32, 8, offset=unknown))


def test_row_indices():
    index = tile(128, 1, dtype="uint32")
    rows = tile(128, 64, memory=HBM, rows=index)
    assert_accepted("dma_copy", **COPY | {"src": rows})
    assert_refused(
        "dma_copy", "indirect", "dge_mode=hwdge", **COPY | {"src": rows, "dge_mode": DgeMode.hwdge}
    )
    assert_refused("dma_copy", "indirect", "both", src=rows, dst=rows)
    assert_refused(
        "dma_copy",
        "indirect",
        "are float32",
        **COPY | {"src": tile(128, 64, memory=HBM, rows=tile(128, 1))},
    )
    assert_refused(
        "dma_copy",
        "indirect",
        "expected [128, 1]",
        **COPY | {"src": tile(128, 64, memory=HBM, rows=tile(64, 1, dtype="int32"))},
    )
    assert_refused(
        "dma_copy", "indirect", "tensors in HBM", **COPY | {"src": tile(128, 64, rows=index)}
    )
    assert_refused("reciprocal", "indirect", "cannot carry", dst=tile(128, 64), data=tile(
        128, 64, rows=index))  # fmt: skip


def test_choices_left_open():
    trn1, trn2 = resolve("trn1"), resolve("trn2")
    moving = affine(SimpleNamespace(number=1, lower=0, upper=3)) * 8
    fixed, loop = tile(8, 4, memory=HBM, offset=M), tile(8, 4, memory=HBM, offset=moving)
    gather = tile(8, 4, memory=HBM, rows=tile(8, 1, dtype="int32"))
    half = tile(8, 4, memory=HBM, dtype="bfloat16", offset=moving)
    dst = tile(8, 4)
    assert dge_mode(dst, fixed, trn2) is DgeMode.none
    assert dge_mode(dst, loop, trn2) is DgeMode.hwdge
    assert dge_mode(dst, loop, trn1) is DgeMode.swdge
    assert dge_mode(dst, half, trn2) is DgeMode.swdge
    assert dge_mode(gather, dst, trn2) is DgeMode.swdge
    assert engine_for_transpose(tile(8, 4, memory=PSUM), dst) is Engine.tensor
    assert engine_for_transpose(tile(8, 4), dst) is Engine.vector


def test_tensor_scalar_engine_follows_the_operators():
    row = OPERATIONS["tensor_scalar"]
    for name, engine in (("rsqrt", Engine.gpsimd), ("add", Engine.vector)):
        values = defaults(row) | SCALE | {"op0": ALU[name]}
        resolved = row.resolve(tuple(values[n] for n in row.field_names), resolve("trn2"))
        assert resolved[-1] is engine


@pytest.mark.parametrize(
    ("name", "given"),
    [("tensor_tensor", ADD), ("tensor_reduce", REDUCE), ("affine_select", SELECT)],
)
def test_pages_list_exactly_the_operators_that_are_not_refused(name, given):
    row = OPERATIONS[name]
    (field,) = [one for _, one, attribute in row.attributes if attribute.kind is Kind.alu]
    listed = functions(row, field)
    assert 3 < len(listed) < len(ALU)
    for op in ALU.values():
        found = check(name, "trn3", **given | {field: op})
        refused = found is not None and found.code == "operator-not-allowed"
        assert refused == (op.name not in listed), op


def test_every_rule_names_its_document():
    """Or leaves it to the operation, whose own page states it."""
    rules = [(rule, row) for row in OPERATIONS.values() for rule in row.rules]
    assert len(rules) > 40
    for rule, row in rules:
        page = f"nki/api/nki.isa.rst#nki.isa.{row.name}" if row.public else ""
        assert rule.name and (rule.document or page).startswith("nki/")
        if row.public:
            assert row.document == page
