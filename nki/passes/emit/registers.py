"""Numbers for the registers of each engine."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np

from isa.columns import Integers, flags_of
from isa.enums import SEQUENCERS, Engine
from nki.ir.nodes import Loop, Register
from nki.passes.analysis.body import Body, Layer
from nki.passes.analysis.steps import bounds_of, check_registers, mentioned


class RegisterFile:
    """Register numbers of one engine: a register is taken at its first mention and given back
    after its last, or after the loop around it when it outlives an iteration. Those that are
    `unset` when they are read, as far as one knows, share their number with no other, so that it is
    seen when they are."""

    def __init__(self, engine: Engine, limit: int, unset: Set[Register]) -> None:
        self.engine = engine
        self.limit = limit
        self.unset = unset
        self.numbers: dict[Register, int] = {}
        self._free: list[int] = []
        self._used = 0

    def take(self, register: Register, location: Any) -> int:
        number = self.numbers.get(register)
        if number is None:
            if self._free and register not in self.unset:
                number = self._free.pop()
            else:
                number = self._used
                self._used += 1
                check_registers(self._used, self.limit, self.engine, location)
            self.numbers[register] = number
        return number

    def release(self, registers: list[Register]) -> None:
        for register in registers:
            if register in self.unset:
                continue
            number = self.numbers.pop(register, None)
            if number is not None:
                self._free.append(number)


class Mentions:
    """Which steps and loops of a body mention registers.

    `steps` are by layer and engine the places of such steps, in order, `by_place` their registers.
    """

    def __init__(self, body: Body, order: Integers) -> None:
        self.body = body
        self._order = order
        self.by_place: dict[int, list[Register]] = {}
        self.steps: dict[tuple[int, int], list[int]] = {}
        self._of_layers: dict[int, set[Register]] = {}
        places = np.flatnonzero(flags_of(order.size, body.mentioning)[order])
        for place, number in zip(places.tolist(), order[places].tolist()):
            step = body.steps[number]
            self.by_place[place] = mentioned(step.instruction)
            key = int(body.layer[number]), step.engine
            self.steps.setdefault(key, []).append(place)

    def location(self, place: int) -> Any:
        """The source location of the step at a place."""
        return self.body.steps[self._order[place]].instruction.location

    def inside(self, layer: Layer) -> set[Register]:
        """The registers that a loop mentions, but for its variable."""
        found = self._of_layers.get(layer.number)
        if found is None:
            node = layer.level.node
            found = set(bounds_of(node))
            for engine in range(len(SEQUENCERS)):
                for place in self.steps.get((layer.number, engine), ()):
                    found.update(self.by_place[place])
            for number in layer.inner:
                found |= self.inside(self.body.layers[number])
            if isinstance(node, Loop):
                found.discard(node.variable)
            self._of_layers[layer.number] = found
        return found


class Assignment:
    """The register numbers of one engine: by place those of the registers that a step mentions, and
    by layer those of a loop's variable and bounds."""

    def __init__(self, mentions: Mentions, engine: int, limit: int, unset: Set[Register]) -> None:
        self.steps: dict[int, dict[Register, int]] = {}
        self.loops: dict[int, dict[Register, int]] = {}
        self._mentions = mentions
        self._engine = engine
        self._file = RegisterFile(SEQUENCERS[engine], limit, unset)
        self._layer(mentions.body.layers[0])

    def _layer(self, layer: Layer) -> None:
        layers, mentions = self._mentions.body.layers, self._mentions
        held = set(self._file.numbers)
        inner = [layers[n] for n in layer.inner if self._engine in layers[n].level.engines]
        steps = mentions.steps.get((layer.number, self._engine), [])
        items: list[tuple[int, Layer | None]] = [(one.first, one) for one in inner]
        items = sorted(items + [(place, None) for place in steps], key=lambda item: item[0])
        last: dict[Register, int] = {}
        for index, (place, loop) in enumerate(items):
            found = mentions.by_place[place] if loop is None else mentions.inside(loop)
            last.update(dict.fromkeys(found, index))
        ends: dict[int, list[Register]] = {}
        for register, index in last.items():
            if register not in held:
                ends.setdefault(index, []).append(register)
        for index, (place, loop) in enumerate(items):
            if loop is None:
                where = mentions.location(place)
                registers = mentions.by_place[place]
                self.steps[place] = {r: self._file.take(r, where) for r in registers}
            else:
                self._loop(loop)
            self._file.release(ends.get(index, []))

    def _loop(self, loop: Layer) -> None:
        node = loop.level.node
        registers = list(bounds_of(node))
        if isinstance(node, Loop):
            registers.insert(0, node.variable)
        assert node is not None
        self.loops[loop.number] = {r: self._file.take(r, node.location) for r in registers}
        self._layer(loop)
        if isinstance(node, Loop):
            self._file.release([node.variable])
