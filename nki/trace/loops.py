"""Rolled loops: two traces of one body, compared, and what their difference means.

A rolled loop's body is traced twice, with a fresh variable each time. The two traces must be the
same up to fresh tensors and registers: anything else is Python state carried from one iteration to
the next, which one copy of the body cannot express. The exception is a matmul that starts an
accumulation in the first iteration and goes on with it later: its flag becomes a predicate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from isa.affine import (
    Affine,
    Polynomial,
    Predicate,
    affine,
    bounds,
    ceil_division,
    identical,
)
from isa.affine.polynomial import Derived
from isa.errors import NeuronError
from isa.fields import Kind
from nki.ir.locations import resolve
from nki.ir.nodes import Access, Loop, Node, Op, Register, Tensor, While, walk


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


def trip_count(lower: Any, upper: Any, step: int) -> Any:
    """Iterations from lower below upper; None where only the device knows."""
    if isinstance(lower, Register) or isinstance(upper, Register):
        return None
    return ceil_division(upper - lower, step)


class Body:
    """One trace of a loop body: its nodes, and what was allocated meanwhile.

    Tensors and registers are numbered in order, so that those of the body have the numbers from
    `tensor` and `register` on, up to those where the next trace began.
    """

    __slots__ = ("nodes", "register", "tensor", "variable")

    def __init__(self, tensor: int, register: int, variable: Register | None) -> None:
        self.nodes: list[Node] = []
        self.tensor = tensor
        self.register = register
        self.variable = variable


class Comparison:
    """Compares the two traces of a loop body; `merge` puts accumulate predicates into the first.

    `start` is what the predicate is true above: the loop's lower bound. None in a `while`, whose
    iterations have no number.
    """

    def __init__(self, first: Body, second: Body, start: Any) -> None:
        self.first = first
        self.second = second
        self.start = start
        self._tensors: dict[Tensor, Tensor] = {}
        self._registers: dict[Register, Register] = {}
        self._ops: dict[Op, Op] = {}
        if first.variable is not None and second.variable is not None:
            self._registers[second.variable] = first.variable

    def merge(self) -> list[Node]:
        """The first trace's nodes. Raises loop-carried-state where the traces differ."""
        self._nodes(self.first.nodes, self.second.nodes)
        return self.first.nodes

    def _nodes(self, first: list[Node], second: list[Node]) -> None:
        for left, right in zip(first, second):
            if type(left) is not type(right) or left.location != right.location:
                raise _carried(
                    right, "the second iteration continues with another operation than the first"
                )
            if isinstance(left, Op):
                self._op(left, right)
            elif isinstance(left, Loop):
                self._loop(left, right)
            elif isinstance(right, While):
                self._value(left.register, right.register, right, "the condition")
                self._nodes(left.body, right.body)
        if len(first) != len(second):
            longer = first if len(first) > len(second) else second
            raise _carried(
                longer[min(len(first), len(second))],
                f"the first iteration has {len(first)} operations here, the second {len(second)}",
            )

    def _loop(self, left: Loop, right: Any) -> None:
        self._value(left.lower, right.lower, right, "the lower bound")
        self._value(left.upper, right.upper, right, "the upper bound")
        if left.step != right.step:
            raise _carried(right, f"the step is {left.step}, then {right.step}")
        self._registers[right.variable] = left.variable
        self._nodes(left.body, right.body)

    def _op(self, left: Op, right: Any) -> None:
        if left.row is not right.row:
            raise _carried(right, f"the operation is {left.row.name}, then {right.row.name}")
        self._ops[right] = left
        for index, (old, new) in enumerate(zip(left.values, right.values)):
            if old is new and not isinstance(old, (Access, Register, Affine, Predicate)):
                continue
            name = left.row.field_names[index]
            field = left.row.fields[name]
            if getattr(field, "kind", None) is Kind.accumulate:
                if not self._same(old, new):
                    flag = self._started(left, old, new)
                    left.values = (*left.values[:index], flag, *left.values[index + 1 :])
                continue
            self._value(old, new, right, name)
        if len(left.after) != len(right.after) or any(
            self._ops.get(b, b) is not a for a, b in zip(left.after, right.after)
        ):
            raise _carried(right, "the operation depends on other operations than before")

    def _started(self, op: Op, old: Any, new: Any) -> Any:
        """The flag of a matmul that overwrites in some iteration and accumulates in later ones."""
        if new is not True or old is True:
            raise _carried(op, f"accumulate is {old}, then {new}")
        if self.start is None or self.first.variable is None:
            raise NeuronError(
                "loop-carried-state",
                what="a matmul starts an accumulation in the first iteration of a `while` and goes "
                "on with it in the next",
                why="The iterations of a `while` have no number that could tell the first one.",
                hint="Allocate the PSUM tile inside the loop, or clear it before the loop and pass "
                "accumulate=True.",
                location=resolve(op.location),
            )
        elapsed = affine(self.first.variable) - (
            affine(self.start) if isinstance(self.start, Register) else self.start
        )
        if isinstance(old, Predicate):
            # All terms are at least zero: the sum is zero in the very first iteration only.
            elapsed = elapsed + old.form
        return Predicate(elapsed, ">")

    def _value(self, old: Any, new: Any, node: Any, what: str) -> None:
        if not self._same(old, new):
            if isinstance(new, Access):
                what, old, new = self._access_difference(old, new, what)
            raise _carried(node, f"{what} is {_shown(old)}, then {_shown(new)}")

    def _same(self, old: Any, new: Any) -> bool:
        if isinstance(new, Access):
            return isinstance(old, Access) and self._same_access(old, new)
        if isinstance(new, Register):
            return isinstance(old, Register) and self._same_register(old, new)
        if isinstance(new, Affine):
            return isinstance(old, Affine) and self._same_affine(old, new)
        if isinstance(new, Predicate):
            return (
                isinstance(old, Predicate) and old.op == new.op and self._same(old.form, new.form)
            )
        if isinstance(new, tuple):
            return (
                isinstance(old, tuple)
                and len(old) == len(new)
                and all(self._same(a, b) for a, b in zip(old, new))
            )
        if type(old) is not type(new):
            return False
        if isinstance(new, float):
            return repr(old) == repr(new)
        return identical(old, new)

    def _same_affine(self, old: Affine, new: Affine) -> bool:
        if not identical(old.constant, new.constant) or len(old.terms) != len(new.terms):
            return False
        coefficients = dict(old.terms)
        for register, coefficient in new.terms:
            partner = self._registers.get(register, register)
            if partner not in coefficients or not identical(coefficients[partner], coefficient):
                return False
        return True

    def _same_register(self, old: Register, new: Register) -> bool:
        if old is new:
            return old.number < self.first.register
        if not self.first.register <= old.number < self.second.register <= new.number:
            return self._registers.get(new) is old
        return self._registers.setdefault(new, old) is old

    def _same_tensor(self, old: Tensor, new: Tensor) -> bool:
        if old is new:
            return old.number < self.first.tensor
        if not self.first.tensor <= old.number < self.second.tensor <= new.number:
            return False
        if self._tensors.setdefault(new, old) is not old:
            return False
        return (
            old.memory is new.memory
            and old.dtype == new.dtype
            and self._same(old.shape, new.shape)
            and old.address == new.address
            and _same_data(old.data, new.data)
        )

    def _same_access(self, old: Access, new: Access) -> bool:
        return (
            self._same_tensor(old.storage, new.storage)
            and old.dtype == new.dtype
            and self._same(old.offset, new.offset)
            and self._same(old.shape, new.shape)
            and self._same(old.strides, new.strides)
            and (
                old.vector_offset is new.vector_offset is None
                or self._same(old.vector_offset, new.vector_offset)
            )
            and self._same(old.vector_stride, new.vector_stride)
            and self._same(old.vector_bound, new.vector_bound)
        )

    def _access_difference(self, old: Any, new: Any, what: str) -> tuple[str, Any, Any]:
        """What of two views differs, for the message."""
        if not isinstance(old, Access):
            return what, old, new
        if not self._same_tensor(old.storage, new.storage):
            return what, f"tensor {old.storage.name!r}", f"tensor {new.storage.name!r}"
        for slot in ("dtype", "shape", "strides", "offset"):
            pair = getattr(old, slot), getattr(new, slot)
            if not self._same(*pair):
                return f"the {slot} of {what} ({old.storage.name!r})", *pair
        return f"the row indices of {what}", old.vector_offset, new.vector_offset


def _same_data(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return left is right
    return left.dtype == right.dtype and np.array_equal(left, right)


def _shown(value: Any) -> str:
    if isinstance(value, Access):
        return f"a view of {value.storage.name!r}"
    if isinstance(value, Register):
        return f"register {value.name!r}"
    return str(value)


def _carried(node: Any, what: str) -> NeuronError:
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

    def check(self, nodes: list[Node], begins: Any) -> None:
        """Raises loop-carried-state; `begins` is the row that begins a tensor."""
        begun: list[Tensor] = []
        for node in nodes:
            if isinstance(node, Op):
                if node.row is begins:
                    tensor = node.values[0].storage
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
                self.check(node.body, begins)
                self._registers.discard(node.variable)
            else:
                self._value(node.register, node)
                self.check(node.body, begins)
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
