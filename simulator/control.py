"""Actions of control instructions: registers, loops, branches, barriers, storage markers.

`CONTROL[row name](preparation, index, instruction)` makes the action of one instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from isa.errors import NeuronError
from isa.machine import control
from isa.program import RegisterReference
from isa.sequencer import CONDITIONS, OPERATIONS, trips, wrapped
from isa.spec import Instruction
from simulator.checks.regions import DEAD, EMPTY, MarkedRegion
from simulator.exchange import Message
from simulator.oracle import fill_sentinel, load_register, store_register
from simulator.row_table import RowTable
from simulator.streams import BLOCKED, HALTED, Action

if TYPE_CHECKING:
    from simulator.prepare import Preparation

Maker = Callable[["Preparation", int, Instruction], Action]

CONTROL: RowTable[Maker] = RowTable()
"""How to make the action of every control row."""


def _getter(preparation: Preparation, value: int | RegisterReference) -> Callable[[], int]:
    """A function that gives a value attribute: a number, or what its register holds."""
    if isinstance(value, RegisterReference):
        return partial(preparation.registers.__getitem__, value.number)
    return partial(int, value)


def _nothing() -> None:
    """Transfers have completed when the next instruction runs, so that draining is no work."""


@CONTROL.of(control.Nop, control.DrainQueue)
def _nop(preparation: Preparation, index: int, instruction: Instruction) -> Action:
    return _nothing


@CONTROL.of(control.Halt)
def _halt(preparation: Preparation, index: int, instruction: Instruction) -> Action:
    return partial(int, HALTED)


@CONTROL.of(control.RegisterMove)
def _register_move(preparation: Preparation, index: int, instruction: Instruction) -> Action:
    dst, src = instruction.values
    registers, number, get = preparation.registers, dst.number, _getter(preparation, src)

    def move() -> None:
        registers[number] = wrapped(get())

    return move


@CONTROL.of(control.RegisterAlu)
def _register_alu(preparation: Preparation, index: int, instruction: Instruction) -> Action:
    dst, op, left, right = instruction.values
    registers, number = preparation.registers, dst.number
    function = OPERATIONS[op]
    get_left, get_right = _getter(preparation, left), _getter(preparation, right)

    def compute() -> None:
        registers[number] = wrapped(function(get_left(), get_right()))

    return compute


@CONTROL.of(control.RegisterLoad)
def _register_load(preparation: Preparation, index: int, instruction: Instruction) -> Action:
    registers, number = preparation.registers, instruction.value("dst").number
    operands = preparation.operands(instruction)
    values = operands.values

    def load() -> None:
        registers[number] = load_register(values[1])

    return preparation.call(index, instruction, operands, load)


@CONTROL.of(control.RegisterStore)
def _register_store(preparation: Preparation, index: int, instruction: Instruction) -> Action:
    operands = preparation.operands(instruction)
    values = operands.values
    return preparation.call(index, instruction, operands, lambda: store_register(*values))


@CONTROL.of(control.LoopBegin)
def _loop_begin(preparation: Preparation, index: int, instruction: Instruction) -> Action:
    register, lower, upper, step, leave = instruction.values
    if step <= 0:
        raise NeuronError("value-not-allowed", f"A loop has step {step}; steps are positive.")
    registers, number = preparation.registers, register.number
    get_lower, get_upper = _getter(preparation, lower), _getter(preparation, upper)
    events, bound = preparation.stream.events, preparation.loop_bound(index)

    def begin() -> int | None:
        first, last = get_lower(), get_upper()
        # The bound is read once: what the body does to its register does not matter.
        bound[0] = last
        registers[number] = first
        events.append(trips(first, last, step))
        return leave if first >= last else None

    return begin


@CONTROL.of(control.LoopEnd)
def _loop_end(preparation: Preparation, index: int, instruction: Instruction) -> Action:
    (begin,) = instruction.values
    register, _, _, step, _ = preparation.stream.instructions[begin].values
    registers, number = preparation.registers, register.number
    bound, again = preparation.loop_bound(begin), begin + 1

    def end() -> int | None:
        value = registers[number] = registers[number] + step
        return again if value < bound[0] else None

    return end


@CONTROL.of(control.Branch)
def _branch(preparation: Preparation, index: int, instruction: Instruction) -> Action:
    condition, left, right, target = instruction.values
    holds = CONDITIONS[condition]
    get_left, get_right = _getter(preparation, left), _getter(preparation, right)
    events = preparation.stream.events

    def branch() -> int | None:
        if holds(get_left(), get_right()):
            events.append(1)
            return target
        events.append(0)
        return None

    return branch


@CONTROL.of(control.CoreBarrier)
def _core_barrier(preparation: Preparation, index: int, instruction: Instruction) -> Action:
    barriers, core, stream = preparation.barriers, preparation.state.number, preparation.stream
    meeting = instruction.row.meeting(instruction.values, core)
    sequence = [0]

    def meet() -> int | None:
        if not stream.issued:
            sequence[0] = barriers.arrive(core, meeting)
        return None if barriers.passed(meeting, sequence[0]) else BLOCKED

    return meet


@CONTROL.of(control.SendReceive)
def _send_receive(preparation: Preparation, index: int, instruction: Instruction) -> Action:
    core, stream = preparation.state.number, preparation.stream
    exchange = preparation.barriers.exchange
    row = instruction.row
    meeting = row.meeting(instruction.values, core)
    operands = preparation.operands(instruction)
    values = operands.values
    number = [0]

    def bring() -> None:
        dst, src, send_to, receive_from = values[:4]
        tracked = preparation.tracked.get(index, (None, None))
        message = Message(dst, src, send_to, receive_from, *tracked[:2])
        number[0] = exchange.bring(core, meeting, message)

    call = preparation.call(index, instruction, operands, bring)

    def meet() -> int | None:
        if not stream.issued:
            call()
        return None if exchange.done(meeting, number[0]) else BLOCKED

    return meet


@CONTROL.of(control.StorageBegin)
def _storage_begin(preparation: Preparation, index: int, instruction: Instruction) -> Action:
    operands, shadow = preparation.operands(instruction), preparation.shadow
    values = operands.values

    if shadow is None:

        def fill() -> None:
            if operands.dynamic:
                operands.refresh()
            fill_sentinel(values[0])

        return fill

    states, begun = shadow.states, preparation.begun
    space = shadow.spaces[operands.windows[0][1].buffer]
    region: MarkedRegion | None = None
    number = 0 if operands.dynamic else states.view(values[0])

    def begin() -> None:
        nonlocal region
        if operands.dynamic:
            operands.refresh()
            fill_sentinel(values[0])
        if region is not None and region.state != DEAD and not operands.dynamic:
            region.state = EMPTY
        else:
            region = begun[index] = space.begin(values[0])
        # The memory gets its sentinel when something may see it.
        if region is None:
            fill_sentinel(values[0])
        else:
            states.fills[region.number] = number

    return begin
