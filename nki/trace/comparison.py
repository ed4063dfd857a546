"""Rolled loops: two traces of one body, compared, and what their difference means.

A rolled loop's body is traced twice, with a fresh variable each time. The two traces must be the
same up to fresh tensors and registers: anything else is Python state carried from one iteration to
the next, which one copy of the body cannot express. The exception is a matmul that starts an
accumulation in the first iteration and goes on with it later: its flag becomes a predicate.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.affine import (
    Affine,
    Predicate,
    identical,
)
from isa.fields import Kind
from nki.ir.builder.groups import continued
from nki.ir.builder.loops import BuiltBody, carried
from nki.ir.nodes import Access, Loop, Node, Op, Register, Tensor, While


class TraceComparison:
    """Compares the two traces of a loop body; `merge` puts accumulate predicates into the first.

    `start` is what the predicate is true above: the loop's lower bound. None in a `while`, whose
    iterations have no number. `flags`: of matmuls whose flag became a predicate, in loops inside
    too, the flag of the very first iteration. The second trace has one iteration of such a loop.
    """

    def __init__(
        self, first: BuiltBody, second: BuiltBody, start: Any, flags: dict[Op, Any]
    ) -> None:
        self.first = first
        self.second = second
        self.start = start
        self._flags = flags
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
                raise carried(
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
            raise carried(
                longer[min(len(first), len(second))],
                f"the first iteration has {len(first)} operations here, the second {len(second)}",
            )

    def _loop(self, left: Loop, right: Any) -> None:
        self._value(left.lower, right.lower, right, "the lower bound")
        self._value(left.upper, right.upper, right, "the upper bound")
        if left.step != right.step:
            raise carried(right, f"the step is {left.step}, then {right.step}")
        self._registers[right.variable] = left.variable
        self._nodes(left.body, right.body)

    def _op(self, left: Op, right: Any) -> None:
        if left.row is not right.row:
            raise carried(right, f"the operation is {left.row.name}, then {right.row.name}")
        self._ops[right] = left
        for index, (old, new) in enumerate(zip(left.values, right.values)):
            if old is new and not isinstance(old, (Access, Register, Affine, Predicate)):
                continue
            name = left.row.field_names[index]
            field = left.row.fields[name]
            if getattr(field, "kind", None) is Kind.accumulate:
                if not self._same(self._flags.get(left, old), new):
                    self._flags.setdefault(left, old)
                    flag = continued(left, old, new, self.first.variable, self.start)
                    left.values = (*left.values[:index], flag, *left.values[index + 1 :])
                continue
            self._value(old, new, right, name)
        if len(left.after) != len(right.after) or any(
            self._ops.get(b, b) is not a for a, b in zip(left.after, right.after)
        ):
            raise carried(right, "the operation depends on other operations than before")

    def _value(self, old: Any, new: Any, node: Any, what: str) -> None:
        if not self._same(old, new):
            if isinstance(new, Access):
                what, old, new = self._access_difference(old, new, what)
            raise carried(node, f"{what} is {_shown(old)}, then {_shown(new)}")

    def _same(self, old: Any, new: Any) -> bool:
        if type(new) is int:
            return type(old) is int and old == new
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
            # Shapes and strides have no registers.
            and (old.shape is new.shape or self._same(old.shape, new.shape))
            and (old.strides is new.strides or self._same(old.strides, new.strides))
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
