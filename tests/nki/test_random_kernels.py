"""Random legal kernels, built from the operation table: all three modes give the same bits.

A kernel is a list of steps over a fixed set of tiles; a step is an operation with field values, or
a loop around steps. Values are drawn by field kind and kept when the operation's rules admit them,
so an operation that is added to the table takes part without a change here.
"""

from __future__ import annotations

from functools import cache
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from isa.alu import ACTIVATIONS, ALU
from isa.binding import bind
from isa.enums import Engine, Memory, ReduceCommand
from isa.fields import REQUIRED, Kind, Operand
from isa.files.container import read, write
from isa.operations import OPERATIONS
from isa.rules import check_call
from isa.target import TARGETS
from nki.ir.locations import resolve
from nki.ir.nodes import Access, Tensor
from simulator.races.happens_before import check

TARGET = TARGETS["trn2"]
TILES = [
    (Memory.sbuf, "float32", (32, 24)),
    (Memory.sbuf, "float32", (32, 24)),
    (Memory.sbuf, "bfloat16", (32, 24)),
    (Memory.sbuf, "int32", (32, 24)),
    (Memory.sbuf, "uint8", (32, 24)),
    (Memory.sbuf, "float32", (32, 1)),
    (Memory.sbuf, "float32", (32, 2)),
    (Memory.sbuf, "float32", (32, 6)),
    (Memory.sbuf, "float32", (32, 8)),
    (Memory.sbuf, "uint32", (32, 8)),
    (Memory.sbuf, "uint32", (32, 2)),
    (Memory.sbuf, "bfloat16", (32, 2)),
    (Memory.sbuf, "int32", (32, 25)),
    (Memory.sbuf, "float32", (1, 12)),
    (Memory.sbuf, "float32", (1, 24)),
    (Memory.sbuf, "float32", (24, 32)),
    (Memory.psum, "float32", (24, 24)),
    (Memory.psum, "float32", (32, 24)),
]
INDICES = [(Memory.sbuf, "uint32", (32, 8)), (Memory.sbuf, "uint16", (32, 1))]
"""Tiles of zeros, which no step writes: indices that every tile has."""

INDEX_DTYPES = [frozenset({dtype}) for _, dtype, _ in INDICES]
SHUFFLE = tuple(255 if lane % 5 == 0 else (lane * 7) % 24 for lane in range(32))
# A register operation needs a register, a barrier a second core: their own tests have them.
ROWS = [
    row
    for row in OPERATIONS.values()
    if row.public
    and TARGET.generation in row.generations
    and row.operands
    and row.minimum_cores == 1
    and not any(f.kind is Kind.register for _, _, f in row.attributes)
]
ALU_OPERATORS = sorted(ALU.values(), key=lambda op: op.name)
ATTRIBUTE_VALUES = {
    Kind.flag: [False, True],
    Kind.alu: ALU_OPERATORS,
    Kind.activation: sorted(ACTIVATIONS.values(), key=lambda a: a.name),
    Kind.pattern: [((1, 24),), ((3, 4), (-2, 6))],
    Kind.integers: [(1,), SHUFFLE],
    Kind.value: [-3, 0, 5],
    Kind.integer: [-3, 0, 2, 20],
    Kind.float32: [0.0, -1.5, 3.0],
    Kind.number: [0, 1, 2, 0.0, 0.5, -2.0],
    Kind.reduce_command: list(ReduceCommand)[:4],
}
USES_PER_OPERATION = 30


def tile_access(index):
    memory, dtype, shape = (TILES + INDICES)[index]
    tensor = Tensor(index, f"tile{index}", memory, dtype, shape)
    return Access(tensor, dtype, shape, (shape[1], 1))


def legal(row, accesses):
    written = [accesses[i].storage.number for i in row.writes if accesses[i] is not None]
    if len(written) != len(set(written)):
        return False
    try:
        accesses = row.resolve(accesses, TARGET)
    except (AttributeError, TypeError):
        return False
    return check_call(row, accesses, TARGET) is None


def field_value(random, field):
    """(value for the step, value as the rules see it)."""
    if isinstance(field, Operand):
        choices = [i for i, tile in enumerate(TILES) if tile[0] in field.memories]
        if field.dtypes is not None:
            choices = [i for i in choices if TILES[i][1] in field.dtypes]
        if field.column:
            choices = [i for i in choices if TILES[i][2][1] == 1]
        if not field.role.writes and field.dtypes in INDEX_DTYPES:
            choices = [len(TILES) + INDEX_DTYPES.index(field.dtypes)]
        if field.immediate and random.random() < 0.4:
            number = random.choice([0.5, 2.0, -1.0])
            return number, number
        if field.optional and random.random() < 0.4:
            return None, None
        index = random.choice(choices)
        return ("tile", index), tile_access(index)
    if field.default is not REQUIRED:
        if field.kind not in ATTRIBUTE_VALUES or random.random() < 0.7:
            return field.default, field.default
    value = random.choice(ATTRIBUTE_VALUES[field.kind])
    return value, value


@cache
def uses(name):
    """Legal uses of an operation: random field values that its rules admit."""
    row = OPERATIONS[name]
    random = Random(name)
    found = []
    for count in range(20_000):
        if count == 2_000 and not found:
            break  # no tile here is what the operation wants
        drawn = {name: field_value(random, field) for name, field in row.fields.items()}
        if legal(row, tuple(access for _, access in drawn.values())):
            found.append({name: value for name, (value, _) in drawn.items()})
            if len(found) == USES_PER_OPERATION:
                break
    return found


def operations():
    """Steps that are one operation each. Uses of all rows take seconds, so no import makes them."""
    names = sorted(row.name for row in ROWS if uses(row.name))
    return st.tuples(st.just("op"), st.sampled_from(names), st.integers(0, USES_PER_OPERATION - 1))


operation = st.deferred(operations)
steps = st.recursive(
    st.lists(operation, min_size=1, max_size=5),
    lambda inner: st.lists(
        st.one_of(
            operation,
            st.tuples(st.just("static"), st.integers(1, 2), inner),
            st.tuples(st.just("dynamic"), st.integers(0, 3), inner),
        ),
        min_size=1,
        max_size=5,
    ),
    max_leaves=4,
)


def run_steps(program, tiles, counts):
    for kind, head, body in program:
        if kind == "op":
            values = {
                name: tiles[value[1]]
                if isinstance(value, tuple) and value[:1] == ("tile",)
                else value
                for name, value in uses(head)[body % len(uses(head))].items()
            }
            getattr(nisa, head)(**values)
            idle = values.get("reduce_cmd") is ReduceCommand.idle
            if idle and Engine.vector in OPERATIONS[head].engines:
                reset_registers()  # they may hold anything now
        elif kind == "static":
            for _ in range(head):
                run_steps(body, tiles, counts)
        else:
            stop = nisa.register_alloc()
            nisa.register_load(stop, counts[0:1, nl.ds(head, 1)])
            for _ in nl.dynamic_range(0, stop):
                run_steps(body, tiles, counts)


def reset_registers():
    """The accumulate registers hold nothing at first; a read of that would reach an output."""
    scratch = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=scratch, value=0.0)
    nisa.activation(dst=scratch, op=nl.copy, data=scratch, reduce_cmd=nisa.reduce_cmd.reset)
    nisa.tensor_scalar_reduce(scratch, scratch, nl.add, 0.0, reduce_op=nl.add)


def kernel(data, trips, program):
    counts = nl.ndarray((1, 4), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=counts, src=trips)
    tiles = []
    for index, (memory, dtype, shape) in enumerate(TILES):
        tile = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf, name=f"tile{index}")
        nisa.dma_copy(dst=tile, src=data[index, 0 : shape[0], 0 : shape[1]])
        if memory is Memory.psum:
            inside = nl.ndarray(shape, dtype=dtype, buffer=nl.psum, name=f"psum{index}")
            nisa.tensor_copy(dst=inside, src=tile)
            tile = inside
        tiles.append(tile)
    for _, dtype, shape in INDICES:
        tiles.append(nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf))
        nisa.memset(dst=tiles[-1], value=0)
    reset_registers()
    run_steps(program, tiles, counts)
    outs = []
    for index, (memory, dtype, shape) in enumerate(TILES):
        out = nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm, name=f"out{index}")
        tile = tiles[index]
        if memory is Memory.psum:
            tile = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf, name=f"copy{index}")
            nisa.tensor_copy(dst=tile, src=tiles[index])
        nisa.dma_copy(dst=out, src=tile)
        outs.append(out)
    return tuple(outs)


def bits(array):
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


# No shrinking: a failing kernel is small already, and shrinking takes minutes.
@settings(
    max_examples=30,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
@given(steps, st.integers(0, 2**16))
@example([("dynamic", 0, [("op", "nc_matmul", 0)]), ("op", "nc_matmul", 0)], 0)
def test_random_kernels_agree_in_all_modes(program, seed):
    rng = np.random.default_rng(seed)
    data = (rng.integers(-8, 9, (len(TILES), 32, 32)) / 2).astype(np.float32)
    trips = np.arange(4, dtype=np.int32)[None]
    jitted = nki.jit(kernel, platform_target="trn2")
    try:
        compiled = nki.compile(jitted, data, trips, program)
    except nki.NeuronError as error:
        # Not a legal kernel; eager mode says the same where the loops in question run twice.
        assert error.code == "accumulation-undecided"
        with pytest.raises(nki.NeuronError) as caught:
            nki.simulate(jitted, mode="eager")(data, np.maximum(trips, 2), program)
        assert caught.value.code == error.code
        assert resolve(caught.value.location) == resolve(error.location)
        return
    outputs = {"device": compiled(data.copy(), trips.copy())}
    for mode in ("reference", "eager"):
        outputs[mode] = nki.simulate(jitted, mode=mode)(data.copy(), trips.copy(), program)
    for mode in ("reference", "eager"):
        for index, (one, other) in enumerate(zip(outputs["device"], outputs[mode])):
            np.testing.assert_array_equal(bits(one), bits(other), err_msg=f"tile {index}, {mode}")
    assert check(bind(compiled.program, {})) == []
    assert read(write(compiled.program)) == compiled.program
