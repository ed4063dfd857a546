"""Rolled loops of the tile IR: bounds, trip counts, bodies, and what may be used where."""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType
from typing import Any

from isa.affine import Affine, Polynomial, Predicate, bounds, ceil_division
from isa.affine.polynomial import Derived
from isa.errors import NeuronError
from isa.fields import INT32
from nki.ir.begins import begun_by
from nki.ir.locations import resolve
from nki.ir.nodes import Access, Loop, Node, Op, Register, Tensor, walk
from nki.ir.open_loops import OpenLoop
from nki.ir.views.indexing import index_form


def loop_bound(value: Any) -> Any:
    """A bound of a loop on the device: an int of 32 bits, a polynomial or a register."""
    if isinstance(value, (Register, Polynomial)):
        return value
    bound = index_form(value, "a loop bound")
    if bound.__class__ is int and not INT32[0] <= bound <= INT32[1]:
        raise NeuronError(
            "value-not-allowed",
            what=f"a loop bound is {bound}",
            why="A loop on the device counts in a register of 32 bits (SDK register_alloc).",
            hint=f"Loops go up to {INT32[1]}: nest two of them.",
        )
    return bound


def check_step(step: Any) -> None:
    """The step of a rolled loop is a positive int."""
    if step.__class__ is not int or step < 1:
        raise NeuronError(
            "value-not-allowed",
            what=f"a rolled loop with step {step!r}",
            why="The step of a loop on the device is a positive integer that is known while "
            "tracing (SDK nki-dynamic-loops.rst, Parameter Constraints).",
            hint="Use a positive int as step.",
        )


def whole_trips(trips: Any) -> Any:
    """Iterations that are surely whole tiles: `(M + 127) // 128` has `M // 128` of them.

    The result is at most one below `trips`, and is `trips` itself where nothing is rounded up.
    """
    if not isinstance(trips, Polynomial):
        return trips
    for monomial, coefficient in trips.terms:
        if coefficient != 1 or len(monomial) != 1 or not isinstance(monomial[0], Derived):
            continue
        atom = monomial[0]
        dividend, divisor = atom.operands
        if atom.kind != "floordiv" or type(divisor) is not int:
            continue
        constant = dict(dividend.terms).get((), 0) if isinstance(dividend, Polynomial) else 0
        if not 0 < constant < divisor:
            continue
        whole = trips - Polynomial((((atom,), 1),)) + (dividend - constant) // divisor
        if bounds(trips - whole) == (0, 1):
            return whole
    return trips


def counted(lower: Any, upper: Any, step: int) -> tuple[Any, Any, Any]:
    """Of a loop from lower below upper: its iterations, and the first and last value of its
    variable; None for what only the device knows."""
    first = None if isinstance(lower, Register) else lower
    if first is None or isinstance(upper, Register):
        return None, first, None
    trips = ceil_division(upper - lower, step)
    return trips, lower, lower + step * (trips - 1)


class BuiltBody:
    """A loop body as it was built once: its nodes, and what was allocated meanwhile.

    Tensors and registers are numbered in order, so that those of the body have the numbers from
    `tensor` and `register` on, up to those where the next time began.
    """

    __slots__ = ("nodes", "register", "tensor", "variable")

    def __init__(self, tensor: int, register: int, variable: Register | None) -> None:
        self.nodes: list[Node] = []
        self.tensor = tensor
        self.register = register
        self.variable = variable


class RolledLoop(OpenLoop):
    """A rolled loop that is being built: its bodies so far, and the block around it."""

    __slots__ = ("bodies", "outer")

    def __init__(
        self,
        outer: list[Node],
        location: Any,
        register: Register | None = None,
        frame: FrameType | None = None,
    ) -> None:
        super().__init__(location, register, frame)
        self.outer = outer
        self.bodies: list[BuiltBody] = []


def carried(node: Any, what: str) -> NeuronError:
    """The error of a body that is not the same in every iteration."""
    return NeuronError("loop-carried-state", what=what, location=resolve(node.location))


def registers_written(nodes: list[Node]) -> Iterator[Register]:
    """The registers that the operations of a body write, with repetitions."""
    for node in walk(nodes):
        if isinstance(node, Op):
            for index in node.row.register_writes:
                yield node.values[index]


def outlives(what: str, location: Any) -> NeuronError:
    """The error of a use, outside of the body of a rolled loop, of what it made."""
    return NeuronError(
        "loop-carried-state",
        what=f"{what} holds a value in one iteration of a rolled loop and is used outside of "
        "it, or before it gets a value",
        why="What a rolled loop's body makes is fresh in every iteration and does not outlive "
        "it. A register must be written before it is read.",
        hint="Make it before the loop.",
        location=resolve(location),
    )


class Scopes:
    """Checks that nothing of a loop body is used outside of it.

    One copy of a body stands for all iterations: its tensors are fresh in each, its variable has a
    value inside only, and the traces that were dropped left nothing behind.
    """

    def __init__(self, tensors: set[Tensor]) -> None:
        self._tensors = tensors
        self._registers: set[Register] = set()

    def check(self, nodes: list[Node]) -> None:
        """Raises loop-carried-state."""
        begun: list[Tensor] = []
        for node in nodes:
            if isinstance(node, Op):
                tensor = begun_by(node)
                if tensor is not None:
                    begun.append(tensor)
                    self._tensors.add(tensor)
                    continue
                for index in node.row.register_writes:
                    self._registers.add(node.values[index])
                for value in node.values:
                    self._value(value, node)
            elif isinstance(node, Loop):
                self._value(node.lower, node)
                self._value(node.upper, node)
                self._registers.add(node.variable)
                self.check(node.body)
                self._registers.discard(node.variable)
            else:
                self._value(node.register, node)
                self.check(node.body)
        self._tensors.difference_update(begun)

    def _value(self, value: Any, node: Any) -> None:
        if isinstance(value, Access):
            if value.storage not in self._tensors:
                self._fail(f"tensor {value.storage.name!r}", node)
            self._value(value.offset, node)
            if value.vector_offset is not None:
                self._value(value.vector_offset, node)
        elif isinstance(value, Register):
            if value not in self._registers:
                self._fail(f"register {value.name!r}", node)
        elif isinstance(value, Affine):
            for register, _ in value.terms:
                self._value(register, node)
        elif isinstance(value, Predicate):
            self._value(value.form, node)

    def _fail(self, what: str, node: Any) -> None:
        raise outlives(what, node.location)
