"""Instruction costs against the documented formulas and against measurements on trn2."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import pytest

from isa.access import AccessPattern
from isa.alu import ACTIVATIONS, ALU
from isa.array_tiles import WHOLE_ARRAY
from isa.cost_formula import quantities
from isa.dtypes import DTYPES
from isa.enums import DgeMode, Engine, Memory, OobMode, ReduceCommand
from isa.machine import control, dma, elementwise, gpsimd, mx, scalar, tensor, vector
from isa.spec import MACHINE_INSTRUCTIONS, Instruction
from isa.target import TARGETS

V, A, G, PE = Engine.vector, Engine.scalar, Engine.gpsimd, Engine.tensor
BF16, FP32, X4 = "bfloat16", "float32", "float8_e4m3fn_x4"
MEASUREMENTS = Path(__file__).parents[3] / "shared" / "facts" / "trn2_primitive_timings.csv"


def at(memory, n, dtype=FP32, stride=1, partitions=128):
    return AccessPattern(memory, dtype, 0, ((stride, n),), 0, partitions)


def sbuf(n, dtype=FP32, stride=1, partitions=128):
    return at(Memory.sbuf, n, dtype, stride, partitions)


def psum(n, dtype=FP32):
    return at(Memory.psum, n, dtype)


def use(row, engine, *values):
    return Instruction(row, engine, values)


def cycles(instruction, target):
    return round(instruction.row.cost.cycles(instruction, TARGETS[target]), 6)


def add(a, b, c, engine=V):
    return use(elementwise.TensorTensor, engine, a, b, c, ALU["add"])


def activate(dst, src, function="exp", bias=None):
    return use(scalar.Activate, A, dst, src, ACTIVATIONS[function], bias, 1.0, ReduceCommand.idle)


def multiply(n, dtype):
    return use(tensor.MultiplyMoving, PE, psum(n), sbuf(n, dtype), True, WHOLE_ARRAY)


def pairs(n):
    """[128, 2, n] in fp8."""
    return AccessPattern(Memory.sbuf, "float8_e4m3", 0, ((n, 2), (1, n)), 0, 128)


# (instruction, cycles on gen2, on gen3) as documented: `nki.isa` costs of release 2.26, and
# the performance modes of the NeuronCore-v3 architecture page; gen3's products with the 9 cycles
# between two of them that AG018 and VG020 show (77.2 TFLOP/s, 860 ns for fp32).
DOCUMENTED = {
    "copy bf16 contiguous": (
        use(elementwise.TensorCopy, V, sbuf(512, BF16), sbuf(512, BF16)), 512, 128
    ),
    "copy bf16 strided": (
        use(elementwise.TensorCopy, V, sbuf(512, BF16, 2), sbuf(512, BF16)), 512, 256
    ),
    "copy bf16 from psum": (
        use(elementwise.TensorCopy, V, sbuf(512, BF16), psum(512, BF16)), 512, 256
    ),
    "copy fp32 from psum": (use(elementwise.TensorCopy, V, sbuf(512), psum(512)), 512, 512),
    "copy on scalar": (use(elementwise.TensorCopy, A, sbuf(512), sbuf(512)), 512, 512),
    "tiny copy": (use(elementwise.TensorCopy, V, sbuf(3), sbuf(3)), 64, 64),
    "add fp32": (add(sbuf(512), sbuf(512), sbuf(512)), 1024, 512),
    "add fp32 psum": (add(sbuf(512), psum(512), sbuf(512)), 512, 512),
    "add bf16": (add(sbuf(512, BF16), sbuf(512, BF16), sbuf(512, BF16)), 512, 256),
    "reduce fp32": (
        use(vector.TensorReduce, V, sbuf(1), sbuf(512), ALU["add"], 1, False), 512, 512
    ),
    "reduce bf16": (
        use(vector.TensorReduce, V, sbuf(1, BF16), sbuf(512, BF16), ALU["add"], 1, False), 256, 256
    ),
    "reciprocal": (use(vector.Reciprocal, V, sbuf(512), sbuf(512)), 2.7 * 512, 3072),
    "zero bf16": (use(elementwise.Memset, V, sbuf(512, BF16), 0), 256, 409.6),
    "predicated copy": (
        use(elementwise.CopyPredicated, V, sbuf(512), sbuf(512), sbuf(512), False), 1024, 545.28
    ),
    "exp": (activate(sbuf(512), sbuf(512)), 512, 512),
    "short exp": (activate(sbuf(8), sbuf(8)), 64, 64),
    "iota": (use(gpsimd.Iota, G, sbuf(100, "int32"), ((1, 100),), 0, 1), 250, 250),
    "matmul bf16": (multiply(512, BF16), 512, 521),
    "matmul fp32": (multiply(512, FP32), 2048, 2066),
    "short matmul": (multiply(8, BF16), 64, 64),
    "load stationary": (use(tensor.LoadStationary, PE, sbuf(128, BF16), WHOLE_ARRAY), 32, 32),
    "transpose bf16": (use(tensor.TransposeStationary, PE, psum(128, BF16), 0, False), 128, 128),
    "transpose fp32": (use(tensor.TransposeStationary, PE, psum(128), 0, False), 512, 256),
    "transpose bf16 into fp32": (
        use(tensor.TransposeStationary, PE, psum(128), DTYPES["bfloat16"].code, True), 128, 128
    ),
    "matmul fp32 zeros and ones": (
        use(tensor.MultiplyMovingOneZero, PE, psum(512), sbuf(512), True, WHOLE_ARRAY), 1024, 1024
    ),
    "matmul fp8 pairs": (
        use(tensor.MultiplyMovingPairs, PE, psum(512), pairs(512), True, WHOLE_ARRAY), 512, 512
    ),
    "load fp8 pairs": (use(tensor.LoadStationaryPairs, PE, pairs(128), WHOLE_ARRAY), 32, 32),
    "transpose bf16 by matmul": (
        use(tensor.TransposeMoving, PE, psum(128, BF16), sbuf(128, BF16), False, WHOLE_ARRAY),
        *(128, 128),
    ),
    "matmul mx": (
        use(
            *(mx.MultiplyMovingMx, PE, psum(512), sbuf(512, X4), sbuf(512, "uint8")),
            *(True, WHOLE_ARRAY),
        ),
        512, 512
    ),
    "load mx": (
        use(mx.LoadStationaryMx, PE, sbuf(128, X4), sbuf(128, "uint8"), WHOLE_ARRAY), 32, 32
    ),
    "quantize mx": (
        use(mx.QuantizeMx, V, sbuf(512, X4), sbuf(2048, BF16), sbuf(512, "uint8")), 512, 512
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DOCUMENTED)
def test_documented_cycles(name):
    instruction, gen2, gen3 = DOCUMENTED[name]
    assert cycles(instruction, "trn1") == gen2
    assert cycles(instruction, "trn2") == gen3


def test_cost_does_not_depend_on_partitions():
    few, many = sbuf(512, partitions=4), sbuf(512)
    for target in TARGETS:
        assert cycles(activate(few, few), target) == cycles(activate(many, many), target)


def test_wide_strides_halve_the_rate():
    def copy(stride):
        return use(elementwise.TensorCopy, A, sbuf(512), sbuf(512, stride=stride))

    assert [cycles(copy(s), "trn1") for s in (1, 4, 5)] == [512, 512, 1024]
    assert [cycles(copy(s), "trn2") for s in (1, 16, 20, 24, 64)] == [512, 512, 768, 1024, 1024]


def test_dma_trigger_depends_on_who_writes_descriptors():
    source = AccessPattern(Memory.shared_hbm, FP32, 0, ((512, 128), (1, 512)), tensor=0)

    def time(mode, target):
        trigger = use(dma.DmaCopy, Engine.sync, sbuf(512), source, 0, mode, OobMode.error)
        return dma.DmaCopy.cost.interval_ns(trigger, TARGETS[target])

    # NA004: 2048^3 bf16 at 58.6 % of 78.6 TFLOP/s loads 320 tiles, then multiplies, then stores.
    alone = 2 * 2048**3 / (0.586 * 78.6e3) - 9403 - 1024 * 217 - 7000
    assert time(DgeMode.none, "trn2") == pytest.approx(alone / 320, rel=0.1)
    assert time(DgeMode.hwdge, "trn2") == 600 < time(DgeMode.swdge, "trn2")
    assert time(DgeMode.none, "trn1") < time(DgeMode.swdge, "trn1")


def test_every_row_has_a_cost_and_every_case_a_source():
    for row in MACHINE_INSTRUCTIONS.values():
        assert row.cost is not None, row.name
        assert all(case.source for case in row.cost.cases), row.name


def test_sympy_form_agrees_with_the_evaluated_formula():
    """The algebraic form of a formula is another evaluator of it."""
    for name, (instruction, *_) in DOCUMENTED.items():
        for target in TARGETS.values():
            cost = instruction.row.cost
            case = cost.case(instruction, target)
            names = quantities(instruction, target)
            expression = case.expression
            value = expression.subs({s: names[s.name] for s in expression.free_symbols})
            assert float(value) == pytest.approx(cost.cycles(instruction, target), rel=1e-12), (
                name,
                target,
            )


def test_equal_signatures_are_evaluated_once():
    cost = elementwise.TensorCopy.cost
    first = use(elementwise.TensorCopy, V, sbuf(77), sbuf(77))
    cost.cycles(first, TARGETS["trn2"])
    size = len(cost._memory)
    elsewhere = AccessPattern(Memory.sbuf, FP32, 4096, ((1, 77),), 0, 128)
    cost.cycles(use(elementwise.TensorCopy, V, elsewhere, elsewhere), TARGETS["trn2"])
    assert len(cost._memory) == size


def test_control_instructions_complete_at_once():
    nop = use(control.Nop, Engine.sync)
    target = TARGETS["trn2"]
    assert nop.row.cost.completion_ns(nop, target) == nop.row.cost.interval_ns(nop, target)


# Measured laws: time from start to completion of isolated instructions on trn2.


def _measured_instruction(row, n):
    name, engine, dtypes = row["op"], row["engine"], row["in_dtype"].split("+")
    kinds = {"fp32": FP32, "bf16": BF16, "-": FP32}
    places = [Memory(m.lower()) for m in row["src_mem"].split("+") if m != "-"]
    dst = at(Memory(row["dst_mem"].lower()), n, kinds[row["out_dtype"]])
    sources = [
        at(places[min(i, len(places) - 1)], n, kinds[d]) for i, d in enumerate(dtypes) if places
    ]
    on = {"VectorE": V, "ScalarE": A, "GpSimdE": G}[engine]
    one = at(dst.memory, 1, dst.dtype)
    builders = {
        "tensor_copy": lambda: use(elementwise.TensorCopy, on, dst, sources[0]),
        "tensor_tensor": lambda: add(dst, sources[0], sources[-1]),
        "tensor_reduce": lambda: use(
            vector.TensorReduce, on, one, sources[0], ALU["add"], 1, False
        ),
        "reciprocal": lambda: use(vector.Reciprocal, on, dst, sources[0]),
        "memset": lambda: use(elementwise.Memset, on, dst, 0),
        "predicated copy": lambda: use(
            elementwise.CopyPredicated, on, dst, sources[0], sources[0], False
        ),
        "activation": lambda: activate(dst, sources[0], row["func"].split("/")[0], sbuf_bias(row)),
        "affine_select": lambda: use(
            gpsimd.AffineSelect, on, dst, sources[0], ((1, n),), 0, 1, ALU["equal"], 0.0
        ),
    }
    build = builders.get(name)
    return None if build is None else build()


def sbuf_bias(row):
    return None if row["func"] == "copy" else sbuf(1)


def test_measured_laws_on_trn2():
    """Every measured law that these instructions cover, within 10 % over its range of sizes."""
    if not MEASUREMENTS.exists():
        pytest.skip(f"{MEASUREMENTS} with the measured laws is not there")
    checked, errors = 0, []
    for row in csv.DictReader(MEASUREMENTS.open()):
        try:
            startup, slope = float(row["startup_ns"]), float(row["per_element_ns"])
            smallest, largest = int(row["min_elems"]), int(row["max_elems"])
        except ValueError:
            continue
        for n in (max(smallest, 64), largest):
            instruction = _measured_instruction(row, n)
            if instruction is None or row["func"] == "silu":
                continue
            checked += 1
            predicted = instruction.row.cost.completion_ns(instruction, TARGETS["trn2"])
            measured = startup + slope * n
            if abs(predicted / measured - 1) > 0.10:
                errors.append((row["op"], row["func"], row["src_mem"], n, predicted, measured))
    assert checked >= 50
    assert not errors


# -- every row of the table against the documented rates of its engine ----------------------------

FASTER = {
    # Rows that the documents say pass their engine's elements a cycle, by how much and where.
    "LoadStationary": (4, "ARCH2, fast weight load"),
    "LoadStationaryPairs": (8, "ARCH2, two values of fp8 a row"),
    "LoadStationaryMx": (4, "ARCH2, fast weight load"),
    "MultiplyMovingPairs": (2, "ARCH3, two values of fp8 a row"),
    "TensorReduce": (2, "COSTS, N/2 for 16 bits"),
    "Memset": (2, "COSTS, N/2 for zeros of 16 bits"),
    "QuantizeMx": (4, "ARCH4, four elements a cycle"),
    "RandomBits": (4, "ARCH4, four random numbers a cycle"),
    "RandomUniform": (4, "ARCH4, four random numbers a cycle"),
}


def applicable(row, engine, target):
    """The costs in cycles that uses of 4096 elements a partition may have on an engine."""
    base = quantities(use(control.Nop, engine), target) | {"N": N, "H": N, "P": 128, "S": 1.0}
    base |= {name: None for _, name, _ in row.attributes}
    base |= {"n": N, "count": N, "width": 1, "loaded": 0, "value": 0, "op0": "subtract"}
    base |= {"op1": "multiply", "dge_mode": "none", "moving_dtype": None, "src_on_chip": True}
    for size, psum_source, op in itertools.product((2, 4), (False, True), OPERATORS):
        names = base | {"in_bytes": size, "out_bytes": size, "bits16": size == 2, "op": op}
        names |= {"contiguous": True, "psum": psum_source, "psum_source": psum_source}
        names["moving_dtype"] = BF16 if size == 2 else FP32
        case = next(
            c for c in row.cost.cases if not c.when or eval(c.when, {"__builtins__": {}}, names)
        )
        if case.unit == "cycles":
            yield size, case, eval(case.formula, {"__builtins__": {}}, names)


N = 4096
OPERATORS = ("add", "maximum", "multiply", "exp")


@pytest.mark.parametrize("target", TARGETS)
def test_no_row_passes_more_elements_than_its_engine_does(target):
    found = TARGETS[target]
    seen, faster = 0, set()
    for row in MACHINE_INSTRUCTIONS.values():
        if row.cost is None or row.control or row.asynchronous or not row.operands:
            continue
        for engine in row.engines:
            most = {2: found.elements_per_cycle_16_bit, 4: found.elements_per_cycle}
            more, _ = FASTER.get(row.name, (1, ""))
            more = more if engine is not G else 1
            for size, case, cycles in applicable(row, engine, found):
                if "N" not in compile(case.formula, "cost", "eval").co_names:
                    continue
                least = N * 128 / (most[size][engine].value * more)
                seen += 1
                if cycles < 0.99 * least or not case.source:
                    faster.add((row.name, engine.name, size, case.formula, case.source))
    assert faster == set()
    assert seen > 300
