"""Micro-kernels of rows that draw random numbers, LANES lanes at once:
`simulator.numerics.random`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.machine import random
from isa.machine.random import GENERATORS, Algorithm, Generator
from simulator.device_state import CoreState
from simulator.native.codegen import ports
from simulator.native.codegen.nest import NestWords
from simulator.native.codegen.text import FunctionText, Value
from simulator.native.plans.plan import Bound, Compound, Plan
from simulator.native.plans.table import plans
from simulator.native.rows.elementwise import (
    MapInput,
    column_of,
    converting,
    scalar_operand,
    tile,
    unsigned,
)
from simulator.native.rows.lockstep import (
    Carried,
    Lockstep,
    RowGroup,
    lockstep,
    plan_lockstep,
)
from simulator.numerics.random import WEYL
from simulator.views import Array, same_type

_WORD = 4

_TAPS_BACK = (10, 30, 31)
"""How far behind the highest tap of the register the others are."""


def _down(f: FunctionText, value: Value, bits: int) -> Value:
    return f.binary("lshr", value, f.like(value, bits))


def _xorwow(f: FunctionText, words: Carried) -> tuple[Value, Carried]:
    x, y, z, w, v, d = words
    t = x ^ _down(f, x, 2)
    last = v ^ (v << 4) ^ t ^ (t << 1)
    d = d + WEYL
    return d + last, (y, z, w, v, last, d)


def _lfsr(f: FunctionText, words: Carried) -> tuple[Value, Carried]:
    """32 steps at once. The bits that fall out, from the lowest on, are a series o, and the taps
    bring each of them back: o * (1 + z + z^2 + z^22) = the register modulo z^32 over the field of
    two elements. Here 1 / (1 + z + z^2) is (1 + z) * (1 + z^3) * (1 + z^6) * ... The register is
    what they leave at the taps then."""

    def divided(series: Value, lowest: int) -> Value:
        """By 1 + z + z^2, for a series without powers below `lowest`."""
        for power in (1, 3, 6, 12, 24):
            if lowest + power < 32:
                series = series ^ (series << power)
        return series

    out = divided(words[0], 0)
    out = out ^ divided(out << 22, 22)
    register = out
    for back in _TAPS_BACK:
        register = register ^ _down(f, out, back)
    return register, (register,)


_DRAW: dict[Algorithm, Callable[[FunctionText, Carried], tuple[Value, Carried]]] = {
    Algorithm.lfsr: _lfsr,
    Algorithm.xorwow: _xorwow,
}


def _uniform(f: FunctionText, number: Value) -> Value:
    """As `simulator.numerics.random.uniform`."""
    upper = f.convert("sitofp", _down(f, number, 8), "float")
    return upper * 2.0 ** (-24)


@dataclass(frozen=True, slots=True)
class Draw(ABC):
    """output = what `element` makes of a new number, an element of each tile, and values of the
    columns and numbers. Operands are the output, the tiles, the columns, and the words of the
    generators' states; numbers are in words behind those of the nest."""

    generator: Generator
    output: str
    tiles: tuple[str, ...]
    others: tuple[tuple[str, str], ...]
    contiguous: bool
    rank: int

    @abstractmethod
    def element(
        self, f: FunctionText, number: Value, read: Sequence[Value], others: Sequence[Value]
    ) -> Value:
        """The stored form of an element."""

    def text(self, name: str) -> str:
        f = FunctionText(name)
        columns = sum(access == "column" for _, access in self.others)
        states = 1 + len(self.tiles) + columns
        nest = NestWords(f, states + 1, self.rank)
        dtypes = (self.output, *self.tiles)
        lanes = [f"i{DTYPES[dtype].bits}" for dtype in dtypes]
        rows = Lockstep(nest, lanes, [DTYPES[dtype].size for dtype in dtypes], self.contiguous)
        generator, words = self.generator, self.generator.words

        def one_group(group: RowGroup) -> None:
            others = rows.constants(group, self.others)
            places = rows.column(group, states)

            def word_of(index: Value) -> list[Value]:
                return [f.element_at(place, index, _WORD) for place in places]

            first = [
                group.collect(word_of(f.integer(index)), "i32")
                for index in range(generator.state_words)
            ]

            def step(read: Sequence[Value], carried: Carried) -> tuple[Value, Carried]:
                # The states take turns: the one that was used goes behind the others.
                number, used = _DRAW[generator.algorithm](f, carried[:words])
                result = self.element(f, number, read, others)
                return result, [*carried[words:], *used]

            last = rows.along(group, step, first, lambda _, stored: stored, lambda result: result)
            count = nest.counts[1]
            for more in nest.counts[2:]:
                count = count * more
            for turn in range(generator.states):
                moved = count + turn
                state = f.binary("urem", moved, f.integer(generator.states))
                begin = state * words
                for index in range(words):
                    target = word_of(begin + index)
                    group.spread(last[turn * words + index], target)

        rows.groups(one_group)
        return f.text()


@dataclass(frozen=True, slots=True)
class DrawBits(Draw):
    """The low bits of the numbers."""

    def element(
        self, f: FunctionText, number: Value, read: Sequence[Value], others: Sequence[Value]
    ) -> Value:
        return f.convert("trunc", number, f"i{DTYPES[self.output].bits}")


@dataclass(frozen=True, slots=True)
class DrawUniform(Draw):
    """low + u * (high - low) in fp32."""

    def element(
        self, f: FunctionText, number: Value, read: Sequence[Value], others: Sequence[Value]
    ) -> Value:
        low, high = others
        scaled = _uniform(f, number) * (high - low)
        return ports.encode_result(f, self.output, low + scaled)


@dataclass(frozen=True, slots=True)
class Drop(Draw):
    """The tile's pattern, or 0 where u is below the probability."""

    def element(
        self, f: FunctionText, number: Value, read: Sequence[Value], others: Sequence[Value]
    ) -> Value:
        (kept,), (probability,) = read, others
        dropped = f.compare("fcmp olt", _uniform(f, number), probability)
        return f.select(dropped, f.like(kept, 0), kept)


@dataclass(frozen=True, slots=True)
class GeneratorPlan(Compound):
    """The plans of a `Draw` for the generators that an engine has on different targets, with one
    more operand for their states."""

    kernel: type[Draw]
    output: MapInput
    inputs: Sequence[MapInput]
    plans: dict[Generator, Plan | None] = field(default_factory=dict)

    def bind(self, state: CoreState, values: Sequence[Any]) -> Bound | None:
        """As `Plan.bind`, for the engine and the partitions that the state has now."""
        first, generation = state.start_partition, state.device.target.generation
        generator = GENERATORS[state.engine, generation]
        lanes = state.random[state.engine][first : first + values[0].shape[0]]
        if generator not in self.plans:
            self.plans[generator] = self._plan(generator, lanes, len(values))
        plan = self.plans[generator]
        return None if plan is None else plan.bind(state, values, [lanes])

    def _plan(self, generator: Generator, lanes: Array, position: int) -> Plan | None:
        output, inputs = self.output, self.inputs
        tiles = [operand for operand in inputs if operand.access == "tile"]
        others = [operand for operand in inputs if operand.access != "tile"]
        assert output.view is not None
        held = column_of(position, lanes, output.view, "uint32")
        in_memory = [operand for operand in others if operand.access == "column"]
        operands = [output, *tiles, *in_memory, held]
        space = lockstep([operand.dims for operand in operands])
        if space is None:
            return None
        kernel = self.kernel(
            generator,
            output.dtype,
            tuple(operand.dtype for operand in tiles),
            tuple((operand.dtype, operand.access) for operand in others),
            all(
                strides[-1] == operand.size
                for operand, strides in zip((output, *tiles), space.strides)
            ),
            len(space.counts),
        )
        return plan_lockstep(kernel, space, operands, others)


@plans(random.RandomBits)
def random_bits(engine: Engine, dst: Array) -> GeneratorPlan | None:
    if dst.dtype.itemsize > _WORD:
        return None
    return GeneratorPlan(DrawBits, tile(0, dst, unsigned(dst)), [])


@plans(random.RandomUniform)
def random_uniform(engine: Engine, dst: Array, low: Any, high: Any) -> GeneratorPlan | None:
    bounds = [scalar_operand(1, low, dst), scalar_operand(2, high, dst)]
    inputs = [operand for operand in bounds if operand is not None]
    if len(inputs) != len(bounds) or not converting(dst):
        return None
    return GeneratorPlan(DrawUniform, tile(0, dst), inputs)


@plans(random.Dropout)
def dropout(engine: Engine, dst: Array, data: Array, probability: Any) -> GeneratorPlan | None:
    bound = scalar_operand(2, probability, data)
    if bound is None or not same_type(dst, data):
        return None
    pattern = unsigned(dst)
    return GeneratorPlan(Drop, tile(0, dst, pattern), [tile(1, data, pattern), bound])
