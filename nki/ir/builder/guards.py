"""Guards: what a kernel assumed of its launch symbols while it was traced."""

from __future__ import annotations

import os
from typing import Any

from isa.affine import Predicate, evaluate, prove, symbols_of
from isa.errors import NeuronError
from isa.program import Guard
from nki.ir.locations import author_location, is_call, resolve

_UNLIMITED = 1 << 20
"""The size at which a symbol without maximum is decided."""


class Guards:
    """Decides branches on launch symbols as they go at the largest sizes, and keeps the condition.

    A launch is refused unless all `conditions` hold.
    """

    def __init__(self) -> None:
        self.conditions: list[Guard] = []
        self.location: Any = None
        """Where the branches are that are decided now; None: where the author's code stands."""
        self._seen: set[Any] = set()

    def add(self, guard: Guard) -> None:
        """Another condition that launches must fulfil."""
        if guard.form not in self._seen:
            self._seen.add(guard.form)
            self.conditions.append(guard)

    def decide(self, predicate: Predicate) -> bool:
        """The truth value at the largest sizes; a guard makes it hold for every launch."""
        form = predicate.form
        author = self.location or author_location()
        if _picks_either(predicate, author):
            return True
        largest = {s.name: largest_size(s) for s in symbols_of(form)}
        holds = predicate.evaluate(largest)
        kept = predicate if holds else predicate.negate()
        value = evaluate(form, largest)
        location = resolve(author)
        place = "" if location is None else f" ({os.path.basename(location.file)}:{location.line})"
        for condition in _nonnegative(kept, value):
            self.add(Guard(condition, f"{kept}{place}", author))
        return holds


def _picks_either(predicate: Predicate, author: Any) -> bool:
    """Whether Python's `min` or `max` asks, and what it picks if told so is right for every size:
    of two values that may be equal, but whose order is known otherwise, either one."""
    order = {"<": "<=", ">": ">="}.get(predicate.op)
    if order is None or prove(predicate.form, order) is not True:
        return False
    return author.__class__ is tuple and any(is_call(author, name) for name in ("min", "max"))


def largest_size(symbol: Any) -> int:
    """The largest size of a launch symbol that is tried: of one without limit, a large one."""
    if symbol.maximum is not None:
        return int(symbol.maximum)
    return int(max(symbol.minimum, _UNLIMITED // symbol.multiple_of * symbol.multiple_of))


def _nonnegative(predicate: Predicate, value: int) -> tuple[Any, ...]:
    """Forms that are all at least zero where the predicate holds; `value` is its form's at the
    largest sizes. A difference from zero becomes the sign that it has there."""
    form, op = predicate.form, predicate.op
    if op == "!=":
        op = ">" if value > 0 else "<"
    forms = {
        ">=": (form,),
        ">": (form - 1,),
        "<=": (-form,),
        "<": (-form - 1,),
        "==": (form, -form),
    }
    if op not in forms:
        raise NeuronError("symbol-branch", what=f"`{predicate}` is no comparison")
    return forms[op]
