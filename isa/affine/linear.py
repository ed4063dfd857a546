"""Affine forms: a polynomial plus registers times polynomials."""

from __future__ import annotations

from typing import Any

from isa.affine.polynomial import Compared, Polynomial, exact_quotient, form_key, operand
from isa.errors import NeuronError

Term = tuple[Any, Any]


class Affine(Compared):
    """constant + sum of coefficient * variable, the terms in order of `variable.number`.

    A variable is an object with `number`, `lower` and `upper` (inclusive bounds: int, Polynomial,
    Affine over variables of lower number, or None). Constant and coefficients are ints or
    Polynomials; a form without terms is its constant. Multiplication takes ints and Polynomials;
    `//` and `%` must come out exact, else register-arithmetic is raised.

    >>> from types import SimpleNamespace
    >>> i = SimpleNamespace(number=3, lower=0, upper=7)
    >>> form = 8 * affine(i) + 24
    >>> form, form // 8, form % 8
    (8*%r3 + 24, %r3 + 3, 0)
    """

    __slots__ = ("constant", "terms")

    __array_ufunc__ = None
    __hash__ = object.__hash__  # comparisons give predicates; see `key`

    def __init__(self, constant: Any, terms: tuple[Term, ...]) -> None:
        self.constant = constant
        self.terms = terms

    @property
    def key(self) -> tuple[Any, ...]:
        """The form's structure, hashable: equal keys are identical forms."""
        return form_key(self.constant), tuple((v.number, form_key(c)) for v, c in self.terms)

    def without_last(self) -> Any:
        """The form without the term of the highest-numbered variable."""
        return Affine(self.constant, self.terms[:-1]) if len(self.terms) > 1 else self.constant

    def __add__(self, other: Any) -> Any:
        if type(other) is int:
            return Affine(self.constant + other, self.terms) if other else self
        if isinstance(other, Affine):
            terms = _merge(self.terms, other.terms)
            constant = self.constant + other.constant
            return Affine(constant, terms) if terms else constant
        other = operand(other)
        return NotImplemented if other is None else Affine(self.constant + other, self.terms)

    __radd__ = __add__

    def __neg__(self) -> Affine:
        return Affine(-self.constant, tuple((v, -c) for v, c in self.terms))

    def __pos__(self) -> Affine:
        return self

    def __sub__(self, other: Any) -> Any:
        if type(other) is int:
            return Affine(self.constant - other, self.terms) if other else self
        if isinstance(other, Affine):
            return self + -other
        other = operand(other)
        return NotImplemented if other is None else Affine(self.constant - other, self.terms)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        if type(other) is not int:
            if isinstance(other, Affine):
                raise _no_form(f"({self}) * ({other})")
            other = operand(other)
            if other is None:
                return NotImplemented
        if isinstance(other, int) and other == 0:
            return 0
        return Affine(self.constant * other, tuple((v, c * other) for v, c in self.terms))

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return self._divide(other, "//")[0]

    def __mod__(self, other: Any) -> Any:
        return self._divide(other, "%")[1]

    def __divmod__(self, other: Any) -> Any:
        return self._divide(other, "//")

    def __rfloordiv__(self, other: Any) -> Any:
        raise _no_form(f"{other} // ({self})")

    def __rmod__(self, other: Any) -> Any:
        raise _no_form(f"{other} % ({self})")

    def _divide(self, other: Any, sign: str) -> tuple[Any, Any]:
        """Quotient and remainder: terms must divide exactly, or all values fit below a divisor."""
        divisor = operand(other)
        if divisor is None:
            raise _no_form(f"({self}) {sign} ({other})")
        if isinstance(divisor, int) and divisor == 0:
            raise NeuronError("integer-division", f"`{self}` is divided by zero")
        quotients = [exact_quotient(c, divisor) for _, c in self.terms]
        if all(q is not None for q in quotients):
            whole = self.constant // divisor
            terms = tuple((v, q) for (v, _), q in zip(self.terms, quotients))
            return Affine(whole, terms), self.constant - whole * divisor
        from isa.affine.bounds import prove_nonnegative

        if prove_nonnegative(self) and prove_nonnegative(divisor - 1 - self):
            return 0, self
        raise _no_form(f"({self}) {sign} {divisor}")

    def __eq__(self, other: object) -> Any:
        return self._compare("==", other)

    def __ne__(self, other: object) -> Any:
        return self._compare("!=", other)

    def _compare(self, operator: str, other: Any) -> Any:
        if not isinstance(other, Affine) and operand(other) is None:
            return NotImplemented
        from isa.affine.predicate import compare

        return compare(self, operator, other)

    def __bool__(self) -> bool:
        return bool(self._compare("!=", 0))

    def __index__(self) -> int:
        raise NeuronError(
            "register-arithmetic",
            f"`{self}` is needed as a plain integer here, but only the device knows its value",
        )

    __int__ = __index__

    def __str__(self) -> str:
        from isa.affine.text import format_affine

        return format_affine(self)

    __repr__ = __str__


def affine(variable: Any) -> Affine:
    """The form whose value is the variable's.

    >>> from types import SimpleNamespace
    >>> affine(SimpleNamespace(number=3, lower=0, upper=7))
    %r3
    """
    return Affine(0, ((variable, 1),))


def _merge(left: tuple[Term, ...], right: tuple[Term, ...]) -> tuple[Term, ...]:
    if len(left) == 1 and len(right) == 1:
        (v1, c1), (v2, c2) = left[0], right[0]
        if v1.number != v2.number:
            return left + right if v1.number < v2.number else right + left
        total = c1 + c2
        return ((v1, total),) if isinstance(total, Polynomial) or total else ()
    merged = {v.number: (v, c) for v, c in left}
    for variable, coefficient in right:
        number = variable.number
        if number in merged:
            coefficient = merged[number][1] + coefficient
            if not isinstance(coefficient, Polynomial) and coefficient == 0:
                del merged[number]
                continue
        merged[number] = (variable, coefficient)
    return tuple(merged[number] for number in sorted(merged))


def _no_form(text: str) -> NeuronError:
    return NeuronError("register-arithmetic", f"`{text}` has no index form")
