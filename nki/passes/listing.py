"""The steps of one core in the order in which engines take them, as text.

Steps of different engines stand in the order in which the scheduler placed them; each engine runs
its own from top to bottom. Operands are views of tensors, as in tile IR. Where semaphores are
known, `-S4` stands for a wait that takes one unit of semaphore 4, `+S4` for an update.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from isa.columns import Integers
from isa.enums import SEQUENCERS
from isa.spec import Instruction
from nki.ir.locations import resolve
from nki.ir.nodes import Loop, Register
from nki.ir.text.printer import is_default, value_text
from nki.passes.analysis.body import Body, Layer
from nki.passes.analysis.steps import Step

if TYPE_CHECKING:
    from nki.passes.synchronise.synchronise import LoopSignals, Signals

_WIDTH = max(len(engine.name) for engine in SEQUENCERS)


def listing(body: Body, order: Integers, signals: Signals | None = None) -> str:
    """One line a step: its engine, what it does, and the line of the kernel."""
    return "".join(f"{line}\n" for line in _Lines(body, order, signals).of(body.layers[0], ""))


class _Lines:
    def __init__(self, body: Body, order: Integers, signals: Signals | None) -> None:
        self.body = body
        self.order = order.tolist()
        self.loops = {} if signals is None else signals.loops
        self.semaphores: defaultdict[int, list[str]] = defaultdict(list)
        if signals is not None:
            columns = [column.tolist() for column in signals[:3]]
            for waiting, _, semaphore in zip(*columns):
                self.semaphores[waiting].append(f"-S{semaphore}")
            for _, telling, semaphore in zip(*columns):
                self.semaphores[telling].append(f"+S{semaphore}")

    def of(self, layer: Layer, indent: str) -> Iterator[str]:
        """The lines of a level."""
        at = layer.first
        for number in layer.inner:
            inner = self.body.layers[number]
            yield from self._steps(at, inner.first, indent)
            yield from self._loop(inner, indent)
            at = inner.end
        yield from self._steps(at, layer.end, indent)

    def _steps(self, first: int, end: int, indent: str) -> Iterator[str]:
        for place in range(first, end):
            step = self.body.steps[self.order[place]]
            for begin, _ in step.begins:
                yield _line(indent, "", begin.row.name, begin, step)
            engine = SEQUENCERS[step.engine].name
            marks = "".join(f" {mark}" for mark in self.semaphores.get(place, ()))
            yield _line(indent, engine, step.instruction.row.name + marks, step.instruction, step)

    def _loop(self, inner: Layer, indent: str) -> Iterator[str]:
        node = inner.level.node
        engines = ", ".join(SEQUENCERS[engine].name for engine in inner.level.engines)
        signals = self.loops.get(inner.number)
        if signals is not None:
            yield from _signals(indent, "ahead", signals, ("enter_waits", "-"), ("primes", "+"))
        if isinstance(node, Loop):
            lower, upper = _bound(node.lower), _bound(node.upper)
            head = f"for %r{node.variable.number} in {lower} to {upper} step {node.step}"
        else:
            assert node is not None
            head = f"while %r{node.register.number}"
        yield f"{indent}{head} on {engines}"
        yield from self.of(inner, indent + "  ")
        if signals is not None:
            for engine, queues in sorted(signals.drains.items()):
                names = ", ".join(str(queue - len(SEQUENCERS)) for queue in queues)
                yield f"{indent}behind: {SEQUENCERS[engine].name} drains queue {names}"
            pairs = ("exit_waits", "-"), ("exit_updates", "+")
            yield from _signals(indent, "behind", signals, *pairs)


def _bound(form: Any) -> str:
    return f"%r{form.number}" if isinstance(form, Register) else str(form)


def _signals(
    indent: str, where: str, signals: LoopSignals, *kinds: tuple[str, str]
) -> Iterator[str]:
    """The semaphores of engines around a loop."""
    for name, sign in kinds:
        for engine, pairs in sorted(getattr(signals, name).items()):
            marks = " ".join(
                f"{sign}S{semaphore}" + (f"*{amount}" if amount > 1 else "")
                for semaphore, amount in pairs
            )
            yield f"{indent}{where}: {SEQUENCERS[engine].name} {marks}"


def _line(indent: str, engine: str, name: str, instruction: Instruction, step: Step) -> str:
    fields = instruction.row.fields.items()
    values = " ".join(
        f"{field_name}={value_text(field, value)}"
        for (field_name, field), value in zip(fields, instruction.values)
        if not is_default(field, value)
    )
    place = resolve(step.op.location)
    where = f"  # line {place.line}" if place is not None and place.line else ""
    return f"{indent}{engine:{_WIDTH}} {name} {values}{where}".rstrip()
