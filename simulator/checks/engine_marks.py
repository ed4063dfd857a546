"""Marks of engine state as regions: loaded tiles, and the accumulate registers and generators of
partitions.

For operands that are all initialised, `EFFECTS` says what a row does to these marks, so that
the native program loop has them as states of regions as well: initialised, or (`EMPTY`) anything
else, which `simulator.checks.propagation` then looks into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from isa.array_tiles import ArrayTile
from isa.enums import Engine, ReduceCommand
from isa.machine import accumulate, mx, random, scalar, tensor
from isa.machine.tensor import tile_of, uses_tile
from isa.spec import Instruction, MachineInstruction
from simulator.checks.initialised import Shadow
from simulator.checks.regions import CLEAN, EMPTY
from simulator.checks.vector_rows import keeps_registers
from simulator.device_state import CoreState

Key = tuple[Any, ...]


class EngineEffect(NamedTuple):
    """What an instruction does to engine state. `writes`: it initialises all of the state that it
    names. `overwrites`: it writes a whole operand, which other uses of its row update."""

    reads: bool = False
    writes: bool = False
    overwrites: bool = False


_Says = Callable[[Sequence[Any]], EngineEffect | None]

_NONE = EngineEffect()
_READS = EngineEffect(reads=True)
_WRITES = EngineEffect(writes=True)


def _command(position: int, idle: EngineEffect | None) -> _Says:
    """The effect of the reduce command at a position of the values."""
    effects = {
        ReduceCommand.idle: idle,
        ReduceCommand.reduce: _READS,
        ReduceCommand.reset: _WRITES,
        ReduceCommand.reset_reduce: _WRITES,
        ReduceCommand.load_reduce: _WRITES,
    }
    return lambda values: effects[values[position]]


def _always(effect: EngineEffect) -> _Says:
    return lambda values: effect


def _product(accumulate: int) -> _Says:
    """Of a multiplication: what PSUM holds counts when it accumulates, as the value at a position
    says."""
    return lambda values: EngineEffect(reads=True, overwrites=not values[accumulate])


EFFECTS: dict[str, _Says] = {
    scalar.ActReadAccumulator.name: _always(_READS),
    accumulate.VectorReadAccumulator.name: _always(_READS),
    random.RandomBits.name: _always(_READS),
    random.RandomUniform.name: _always(_READS),
    random.Dropout.name: _always(_READS),
    random.GetRandomState.name: _always(_READS),
    random.SetRandomState.name: _always(_WRITES),
    random.SeedRandom.name: _always(_WRITES),
    tensor.LoadStationary.name: _always(_WRITES),
    tensor.LoadStationaryPairs.name: _always(_WRITES),
    tensor.MultiplyMoving.name: _product(2),
    tensor.MultiplyMovingOneZero.name: _product(2),
    tensor.MultiplyMovingPairs.name: _product(2),
    tensor.TransposeStationary.name: _always(_READS),
    tensor.TransposeMoving.name: _product(2),
    mx.LoadStationaryMx.name: _always(_WRITES),
    mx.MultiplyMovingMx.name: _product(3),
}
"""By row name; None where the marks have to be followed each time. Rows that state their meaning
follow from it (`effect_of`)."""


def effect_of(row: type[MachineInstruction]) -> _Says | None:
    """What uses of a row do to engine state, by their values; None of rows that have none."""
    found = EFFECTS.get(row.name)
    if found is None and row.meaning is not None and row.meaning.fold is not None:
        position = row.places[row.meaning.fold.command]
        found = EFFECTS[row.name] = _command(position, _NONE if keeps_registers(row) else None)
    return found


_WHOLE_ENGINE = frozenset({random.SeedRandom.name})
_GENERATING = _WHOLE_ENGINE | {
    *(random.RandomBits.name, random.RandomUniform.name, random.Dropout.name),
    *(random.GetRandomState.name, random.SetRandomState.name),
}
"""The rows that use generators, and of these the ones that use all of an engine's."""


def _reads(instruction: Instruction) -> bool:
    """Whether an instruction reads accumulate registers."""
    name = instruction.row.name
    says = None if uses_tile(instruction.row) or name in _GENERATING else effect_of(instruction.row)
    effect = None if says is None else says(instruction.values)
    return effect is not None and effect.reads


class EngineMarks:
    """The engine state of one core that its program names, each a region of the shadow's states.
    `instructions` are all of the core; they may be gone through, once, when `use` is called."""

    def __init__(
        self, shadow: Shadow, state: CoreState, instructions: Iterable[Instruction]
    ) -> None:
        self._shadow = shadow
        self._state = state
        self._instructions = instructions
        self._reading: frozenset[Engine] | None = None
        self._tiles: dict[tuple[int, ArrayTile], int] = {}
        self._registers: dict[tuple[Engine, int, int], int] = {}
        self._generators: dict[tuple[Engine, int, int], int] = {}

    def use(
        self,
        row: type[MachineInstruction],
        engine: Engine,
        values: Sequence[Any],
        start: int,
        partitions: int,
    ) -> tuple[int, EngineEffect] | None:
        """The number of the region that an instruction uses and what it does to it; None where the
        marks have to be followed each time."""
        says = effect_of(row)
        effect = None if says is None else says(values)
        if effect is None and says is not None and engine not in self._reads():
            # It leaves registers undefined that nothing will see.
            effect = _NONE
        if effect is None:
            if self._shadow.reports:
                return None
            effect = _NONE
        states = self._shadow.states
        if uses_tile(row):
            key = (self._state.number, tile_of(row, values))
            if key not in self._tiles:
                self._tiles[key] = states.add(CLEAN)
            return self._tiles[key], effect
        known = self._generators if row.name in _GENERATING else self._registers
        if row.name in _WHOLE_ENGINE:
            start, partitions = 0, len(self._state.random[engine])
        place = engine, start, partitions
        if place not in known:
            known[place] = states.add(EMPTY)
        return known[place], effect

    def _reads(self) -> frozenset[Engine]:
        """The engines whose accumulate registers an instruction of the core reads."""
        if self._reading is None:
            self._reading = frozenset(
                instruction.engine for instruction in self._instructions if _reads(instruction)
            )
        return self._reading

    def tell(self) -> None:
        """Give the shadow's marks what native code has found out."""
        states = self._shadow.states.states
        for key, number in self._tiles.items():
            if states[number] == CLEAN:
                self._shadow.stationary.pop(key, None)
        for registers, number in self._registers.items():
            if states[number] == CLEAN:
                self._marks(registers)[...] = True
        for (engine, start, partitions), number in self._generators.items():
            drawn_from = self._shadow.generators.get((self._state.number, engine))
            if states[number] == CLEAN and drawn_from is not None:
                drawn_from[start : start + partitions] = True

    def ask(self) -> None:
        """Take what the shadow's marks are now: none where it does not report."""
        states = self._shadow.states.states
        if not self._shadow.reports:
            numbers = *self._tiles.values(), *self._registers.values()
            for number in (*numbers, *self._generators.values()):
                states[number] = CLEAN
            return
        for key, number in self._tiles.items():
            states[number] = EMPTY if key in self._shadow.stationary else CLEAN
        for registers, number in self._registers.items():
            states[number] = CLEAN if self._marks(registers).all() else EMPTY
        for (engine, start, partitions), number in self._generators.items():
            drawn_from = self._shadow.generators.get((self._state.number, engine))
            drawn = None if drawn_from is None else drawn_from[start : start + partitions]
            states[number] = CLEAN if drawn is None or drawn.all() else EMPTY

    def _marks(self, registers: tuple[Engine, int, int]) -> Any:
        engine, start, partitions = registers
        state = self._state
        known = state.engine, state.start_partition
        state.engine, state.start_partition = engine, start
        marks = self._shadow.accumulator_marks(state, partitions)
        state.engine, state.start_partition = known
        return marks
