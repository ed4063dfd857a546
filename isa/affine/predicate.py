"""Comparisons of index forms: decided by bounds, by a handler, or refused."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from math import gcd
from typing import Any

from isa.affine.bounds import bounds, symbol_ranges
from isa.affine.linear import Affine
from isa.affine.polynomial import Polynomial, form_key
from isa.errors import NeuronError

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}

_GUARDS: dict[str, Callable[[Any], Any]] = {
    "<": lambda form: -form - 1,
    "<=": lambda form: -form,
    ">": lambda form: form - 1,
    ">=": lambda form: form,
    "==": lambda form: -(form * form),
    "!=": lambda form: form * form - 1,
}

DECIDE: ContextVar[Callable[[Predicate], bool] | None] = ContextVar("DECIDE", default=None)
"""Decides predicates on launch symbols that bounds leave open; set while a kernel is traced. It may
record a guard that makes its answer true for every admitted size."""


@contextmanager
def questions() -> Iterator[list[Predicate]]:
    """The predicates that are put to `DECIDE` meanwhile: what follows from the answers holds for
    one trace only.

    >>> from isa.affine import Symbol, polynomial
    >>> token = DECIDE.set(lambda predicate: True)
    >>> with questions() as asked:
    ...     bool(polynomial(Symbol("M", 1000)) < 100)
    True
    >>> asked
    [M < 100]
    >>> DECIDE.reset(token)
    """
    asked: list[Predicate] = []
    handler = DECIDE.get()
    if handler is None:
        yield asked
        return

    def decide(predicate: Predicate) -> bool:
        asked.append(predicate)
        return handler(predicate)

    token = DECIDE.set(decide)
    try:
        yield asked
    finally:
        DECIDE.reset(token)


class Predicate:
    """`form op 0`, with op one of < <= > >= == !=.

    Its truth value is the proven one; else a form over launch symbols alone is put to `DECIDE`
    (without handler: symbol-branch), and one over registers raises register-branch. Equality and
    hash are structural.

    >>> from isa.affine import Symbol, polynomial
    >>> Predicate(polynomial(Symbol("M", 1000)) - 100, "<")
    M < 100
    """

    __slots__ = ("form", "op")

    def __init__(self, form: Any, op: str) -> None:
        self.form = form
        self.op = op

    def __bool__(self) -> bool:
        verdict = prove(self.form, self.op)
        if verdict is not None:
            return verdict
        if isinstance(self.form, Affine):
            raise NeuronError("register-branch", f"`{self}` has no value while tracing")
        handler = DECIDE.get()
        if handler is None:
            from isa.affine.values import symbols_of

            raise NeuronError(
                "symbol-branch",
                f"`{self}` holds for some sizes only: {symbol_ranges(symbols_of(self.form))}",
            )
        return handler(self)

    def negate(self) -> Predicate:
        """The predicate that holds where this one does not."""
        return Predicate(self.form, _NEGATED[self.op])

    @property
    def guard(self) -> Any:
        """A form that is at least 0 exactly where the predicate holds."""
        return _GUARDS[self.op](self.form)

    def evaluate(
        self, binding: Mapping[str, int], registers: Mapping[int, int] | None = None
    ) -> bool:
        """Whether it holds for these symbol values and registers (by number)."""
        from isa.affine.values import evaluate

        return _OPERATORS[self.op](evaluate(self.form, binding, registers), 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Predicate) and self.op == other.op and _same(self.form, other.form)

    def __hash__(self) -> int:
        return hash((self.op, _key(self.form)))

    def __str__(self) -> str:
        constant = self.form.constant if isinstance(self.form, Affine) else _constant(self.form)
        return f"{self.form - constant} {self.op} {-constant}"

    __repr__ = __str__


def compare(left: Any, op: str, right: Any) -> bool | Predicate:
    """left op right: a bool where bounds decide it for all values, else a Predicate.

    >>> from isa.affine import Symbol, polynomial
    >>> M = polynomial(Symbol("M", 1000))
    >>> compare(M, "<=", 1000), compare(M, "<", 100)
    (True, M < 100)
    """
    form = left - right
    verdict = prove(form, op)
    return Predicate(form, op) if verdict is None else verdict


def prove(form: Any, op: str) -> bool | None:
    """Whether `form op 0` holds for all values (True), for none (False), or is open (None).

    >>> from isa.affine import Symbol, polynomial
    >>> M = polynomial(Symbol("M", 1000))
    >>> prove(M - 1, ">="), prove(M, "<"), prove(M - 9, ">=")
    (True, False, None)
    """
    if isinstance(form, int):
        return _OPERATORS[op](form, 0)
    if op in ("!=", "<", "<="):
        negated = prove(form, _NEGATED[op])
        return None if negated is None else not negated
    low, high = bounds(form)
    if op == "==":
        if low == 0 and high == 0:
            return True
        if (low is not None and low > 0) or (high is not None and high < 0) or _indivisible(form):
            return False
        return None
    limit = 0 if op == ">=" else 1
    if low is not None and low >= limit:
        return True
    return False if high is not None and high < limit else None


def decide_equality(left: Any, right: Any) -> bool:
    """`==` of polynomials that are not identical: proven, else decided by the handler, else no."""
    form = left - right
    verdict = prove(form, "==")
    if verdict is not None:
        return verdict
    return DECIDE.get() is not None and bool(Predicate(form, "=="))


def _indivisible(form: Any) -> bool:
    """No integers solve form == 0, since all coefficients share a factor the constant lacks."""
    factor, constant = 0, 0
    parts = [form]
    if isinstance(form, Affine):
        parts = [form.constant, *(c for _, c in form.terms)]
    for position, part in enumerate(parts):
        if isinstance(part, Polynomial):
            for monomial, coefficient in part.terms:
                if monomial or position:
                    factor = gcd(factor, coefficient)
                else:
                    constant = coefficient
        elif position:
            factor = gcd(factor, part)
        else:
            constant = part
    return factor != 0 and constant % factor != 0


def _constant(form: Any) -> int:
    return dict(form.terms).get((), 0) if isinstance(form, Polynomial) else form


def _key(form: Any) -> Any:
    return form.key if isinstance(form, Affine) else form_key(form)


def _same(left: Any, right: Any) -> bool:
    return _key(left) == _key(right) and isinstance(left, Affine) == isinstance(right, Affine)
