"""The native program loop does what the Python executor does: outputs, trace, findings, errors."""

from __future__ import annotations

import random
import signal
from typing import Any

import numpy as np
import pytest
from programs import Builder, contiguous, hbm, reg, sbuf

from isa.alu import ACTIVATIONS, ALU
from isa.enums import Condition, Engine, ReduceCommand, RegisterOperation
from isa.errors import NeuronError
from isa.machine import accumulate, control, elementwise, scalar, vector
from isa.program import Program
from simulator.checks.marks import Space
from simulator.execute import LoadedProgram
from simulator.native.codegen.library import library
from simulator.native.loop.program import EVENTS
from simulator.watchdog import RunLimits, limited

Array = np.ndarray[Any, Any]
E = Engine

pytestmark = pytest.mark.skipif(library() is None, reason="there is no native code here")

PARTITIONS, COLUMNS = 4, 16
"""Of the memory in which a random program works, in fp32 elements."""


def outcome(loaded: LoadedProgram, inputs: list[Array], limit: int = 10**6) -> Any:
    """All that a run shows: results, trace and findings, or its error."""
    try:
        with limited(RunLimits(limit)):
            result = loaded.run(inputs)
    except NeuronError as error:
        return error.code, error.what, error.location
    return (
        [array.tobytes() for array in (*result.outputs, *result.inputs_after)],
        [dict(core) for core in result.trace.cores],
        result.findings,
    )


def assert_same(program: Program, inputs: list[Array], limit: int = 10**6) -> Any:
    """Native and Python executor agree, when they run first and when they run again."""
    found = [
        outcome(loaded, inputs, limit)
        for loaded in (LoadedProgram(program, native=native) for native in (False, True))
        for _ in range(2)
    ]
    assert all(other == found[0] for other in found[1:])
    return found[0]


class RandomProgram:
    """A vector engine that begins, fills, copies and computes in boxes that overlap."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.builder = Builder()
        self.source = self.builder.tensor("a", "float32", (PARTITIONS, COLUMNS), "input")
        self.out = self.builder.tensor("out", "float32", (PARTITIONS, COLUMNS), "output")
        # Two cuts of the same memory into allocations.
        self.boxes = [(0, 8), (8, 8), (0, 16), (4, 4)]

    def view(self, width: int, register: bool = False) -> Any:
        first = self.random.randrange(COLUMNS - width + 1)
        moves = ((3, 4 * width),) if register else ()
        if register:
            first = 0
        return sbuf("float32", 4 * first, PARTITIONS, width, registers=moves)

    def instruction(self, register: bool) -> None:
        add, choose = self.builder.add, self.random.choice
        width = choose((1, 2, 4, 8)) if register else choose((1, 2, 4, 8, 16))
        moved = register and self.random.random() < 0.7
        views = [self.view(width, moved and self.random.random() < 0.6) for _ in range(3)]
        kind = self.random.randrange(8)
        if kind == 0:
            first, columns = choose(self.boxes)
            self.builder.begin(E.vector, sbuf("float32", 4 * first, PARTITIONS, columns))
        elif kind == 1:
            add(E.vector, elementwise.Memset, views[0], float(self.random.randrange(5)))
        elif kind == 2:
            rows = hbm(self.source, "float32", ((COLUMNS, PARTITIONS), (1, width)))
            self.builder.dma(E.vector, views[0], rows)
        elif kind == 3:
            rows = hbm(self.out, "float32", ((COLUMNS, PARTITIONS), (1, width)))
            self.builder.dma(E.vector, rows, views[0])
        elif kind == 4:
            add(E.vector, elementwise.TensorTensor, *views, ALU["add"])
        elif kind == 5:
            add(E.vector, elementwise.TensorCopy, views[0], views[1])
        elif kind == 6:
            one = self.view(1)
            add(E.vector, vector.TensorReduce, one, views[1], ALU["maximum"], 1, False)
        else:
            values = (ALU["multiply"], 0.5, ALU["add"])
            command = choose((ReduceCommand.reset_reduce, ReduceCommand.reduce))
            row = accumulate.TensorScalarReduce
            add(E.vector, row, views[0], views[1], *values, command, None)
            add(E.vector, accumulate.VectorReadAccumulator, self.view(1), False, 0)

    def finish(self) -> Program:
        b = self.builder
        whole = sbuf("float32", 0, PARTITIONS, COLUMNS)
        if self.random.random() < 0.8:
            b.begin(E.vector, whole)
            rows = hbm(self.source, "float32", ((COLUMNS, PARTITIONS), (1, COLUMNS)))
            b.dma(E.vector, whole, rows)
        for _ in range(self.random.randrange(1, 6)):
            self.instruction(False)
        begin = b.add(E.vector, control.LoopBegin, reg(3), 0, self.random.randrange(4), 1, 0)
        for _ in range(self.random.randrange(1, 7)):
            self.instruction(True)
        end = b.add(E.vector, control.LoopEnd, begin)
        loop = b.cores[0][E.vector][begin]
        loop.values = (*loop.values[:4], end + 1)
        for _ in range(self.random.randrange(3)):
            self.instruction(False)
        if self.random.random() < 0.8:
            b.dma(E.vector, hbm(self.out, "float32", contiguous((PARTITIONS, COLUMNS))), whole)
        return b.finish()


@pytest.mark.parametrize("first", range(0, 240, 40))
def test_random_programs(first: int) -> None:
    data = np.random.default_rng(first).uniform(-1, 1, (PARTITIONS, COLUMNS)).astype(np.float32)
    found = [assert_same(RandomProgram(seed).finish(), [data]) for seed in range(first, first + 40)]
    # Some fail and some do not.
    assert {type(outcome[0]) for outcome in found} == {str, list}


@pytest.mark.parametrize("first", range(0, 80, 40))
def test_random_programs_without_checks(first: int) -> None:
    """Memory that is read before it is written holds its sentinel, whoever puts it there."""
    data = np.random.default_rng(first).uniform(-1, 1, (PARTITIONS, COLUMNS)).astype(np.float32)
    sentinels = 0
    for seed in range(first, first + 40):
        program = RandomProgram(seed).finish()
        plain, native = (LoadedProgram(program, False, flag) for flag in (False, True))
        # What is in no allocation holds what the run before left.
        for _ in range(2):
            found = outcome(native, [data])
            assert found == outcome(plain, [data]), seed
            assert found[2] == []
            sentinels += int(np.isnan(np.frombuffer(found[0][0], np.float32)).any())
    assert sentinels > 10


def counting(trips: int) -> Program:
    """A loop that counts, multiplies and branches in registers, with an event in each iteration."""
    b = Builder()
    out = b.tensor("out", "int32", (1, 4), "output")
    tile = sbuf("int32", 0, 1, 4)
    b.begin(E.gpsimd, tile)
    operations = list(RegisterOperation)
    for number, value in ((1, -7), (2, 0), (3, 0)):
        b.add(E.gpsimd, control.RegisterMove, reg(number), value)
    begin = b.add(E.gpsimd, control.LoopBegin, reg(0), -3, trips - 3, 1, 0)
    for number, operation in enumerate(operations):
        b.add(E.gpsimd, control.RegisterAlu, reg(1), operation, reg(1), reg(0))
        b.add(E.gpsimd, control.RegisterAlu, reg(2), operation, 5 * number - 9, reg(1))
    for condition in Condition:
        place = len(b.cores[0][E.gpsimd])
        b.add(E.gpsimd, control.Branch, condition, reg(1), reg(2), place + 2)
        b.add(E.gpsimd, control.RegisterAlu, reg(1), RegisterOperation.add, reg(1), 3)
    end = b.add(E.gpsimd, control.LoopEnd, begin)
    loop = b.cores[0][E.gpsimd][begin]
    loop.values = (*loop.values[:4], end + 1)
    for number in range(4):
        b.add(E.gpsimd, control.RegisterStore, sbuf("int32", 4 * number, 1, 1), reg(number))
    b.dma(E.gpsimd, hbm(out, "int32", contiguous((1, 4))), tile)
    return b.finish()


@pytest.mark.parametrize("trips", [0, 1, 5, EVENTS])
def test_registers_branches_and_many_events(trips: int) -> None:
    _, trace, findings = assert_same(counting(trips), [])
    events = trace[0][E.gpsimd]
    assert events[0] == trips and len(events) == 1 + trips * len(Condition) and not findings


def test_a_budget_runs_out_at_the_same_place() -> None:
    code, _, _ = assert_same(counting(50), [], limit=300)
    assert code == "loop-limit"


def test_an_offset_outside_is_located() -> None:
    b = Builder()
    a = b.tensor("a", "float32", (8, 4), "input")
    out = b.tensor("out", "float32", (8, 4), "output")
    tile = sbuf("float32", 0, 1, 4)
    begin = b.add(E.sync, control.LoopBegin, reg(0), 0, 9, 1, 5)
    b.begin(E.sync, tile)
    row = ((4, 1), (1, 4))
    b.dma(E.sync, tile, hbm(a, "float32", row, registers=((0, 16),)))
    b.dma(E.sync, hbm(out, "float32", row, registers=((0, 16),)), tile)
    b.add(E.sync, control.LoopEnd, begin)
    data = np.arange(32, dtype=np.float32).reshape(8, 4)
    code, _, location = assert_same(b.finish(), [data])
    assert code == "dynamic-out-of-bounds" and location is not None


def test_an_interrupt_stops_a_run() -> None:
    """What is raised while Python looks after signals ends the run."""
    loaded = LoadedProgram(counting(5000))
    assert loaded._compiled is not None
    looks = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise KeyboardInterrupt

    loaded._compiled.look = look  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        loaded.run([])
    assert len(looks) == 3


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no such timers here")
def test_a_signal_stops_native_code() -> None:
    """What its handler raises reaches the caller of a run of several seconds, each time."""
    loaded = LoadedProgram(counting(10**6))

    def handle(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handle)
    try:
        for _ in range(12):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            with pytest.raises(KeyboardInterrupt):
                loaded.run([])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_activations_share_registers_with_numpy() -> None:
    """Registers that one instruction fills natively are read by one that NumPy executes."""
    b = Builder()
    a = b.tensor("a", "float32", (4, 16), "input")
    out = b.tensor("out", "float32", (4, 1), "output")
    tile, result, total = (sbuf("float32", 64 * i, 4, 16) for i in range(3))
    total = sbuf("float32", 128, 4, 1)
    for each in (tile, result, total):
        b.begin(E.scalar, each)
    b.dma(E.scalar, tile, hbm(a, "float32", contiguous((4, 16))))
    for name, command in (("square", ReduceCommand.reset_reduce), ("sin", ReduceCommand.reduce)):
        op = ACTIVATIONS[name]
        b.add(E.scalar, scalar.Activate, result, tile, op, None, 1.0, command)
    b.add(E.scalar, scalar.ActReadAccumulator, total, 0)
    b.dma(E.scalar, hbm(out, "float32", contiguous((4, 1))), total)
    data = np.random.default_rng(5).uniform(-3, 3, (4, 16)).astype(np.float32)
    outputs, _, findings = assert_same(b.finish(), [data])
    expected = (data.astype(np.float64) ** 2 + np.sin(data.astype(np.float64))).sum(1)
    np.testing.assert_allclose(np.frombuffer(outputs[0], np.float32), expected, rtol=1e-5)
    assert findings == []


def test_marks_are_no_finer_in_the_next_run(monkeypatch):
    """Reading rows that nobody wrote makes a tensor's marks finer until the run ends. What was
    learned of a store meanwhile holds for the coarse marks that the next run begins with."""
    behind = 1 << 16
    whole: list[Any] = []

    def marks(space: Space) -> Any:
        """Marks with memory behind them that nobody may touch."""
        if space._marks is None:
            size = space.size // space.unit
            whole.append(np.zeros(size + behind, np.uint8))
            space._marks = whole[-1][:size]
            whole[-1][size:] = 7
            space.cells[:] = [space._marks.ctypes.data, space.unit]
        return space._marks

    monkeypatch.setattr(Space, "marks", property(marks))
    builder = Builder()
    target = builder.tensor("b", "float32", (8, 1024), "output")
    x, y = sbuf("float32", 0, 4, 1024), sbuf("float32", 4096, 8, 1024)
    rows = hbm(target, "float32", contiguous((4, 1024)))
    builder.begin(E.vector, x)
    builder.begin(E.vector, y)
    builder.add(E.vector, elementwise.Memset, x, 1.0)
    builder.dma(E.vector, rows, x)
    builder.dma(E.vector, y, hbm(target, "float32", contiguous((8, 1024))))
    builder.dma(E.vector, rows, x)
    loaded = LoadedProgram(builder.finish())
    errors = []
    for _ in range(2):
        with pytest.raises(
            NeuronError, match="4096 of its 8192 elements were never written"
        ) as error:
            loaded.run([])
        errors.append(str(error.value))
    assert errors[0] == errors[1]
    assert all((each[-behind:] == 7).all() for each in whole)
