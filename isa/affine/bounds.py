"""Bounds of index forms, by interval arithmetic that knows floor divisions and loop bounds."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import ceil, floor, gcd
from typing import Any

from isa.affine.polynomial import Derived, Monomial, Polynomial, monomial_key, multiply_monomials
from isa.affine.symbol import Symbol

Bound = int | None
_Rational = dict[Monomial, Fraction]

_MAXIMUM_CORNER_ATOMS = 4  # 2**4 expansions of a polynomial at most; more atoms use two


def bounds(value: Any) -> tuple[Bound, Bound]:
    """Lowest and highest value of a form (inclusive), None where unlimited or unknown.

    Every value of the form for admitted symbols and loop variables lies between them.

    >>> from isa.affine import polynomial, Symbol
    >>> M = polynomial(Symbol("M", 1000))
    >>> bounds(M - 128 * (M // 128))
    (0, 127)
    """
    if isinstance(value, Polynomial):
        if value._bounds is None:
            value._bounds = _polynomial_bounds(value)
        return value._bounds
    if isinstance(value, int):
        return value, value
    plain = _plain_bounds(value)
    if plain is not None:
        return plain
    low, high = extremes(value)
    return (
        None if low is None else bounds(low)[0],
        None if high is None else bounds(high)[1],
    )


def _plain_bounds(value: Any) -> tuple[int, int] | None:
    """Bounds of an Affine of plain ints over variables with plain bounds: the common case."""
    low = high = value.constant
    if type(low) is not int:
        return None
    for variable, coefficient in value.terms:
        lower, upper = variable.lower, variable.upper
        if type(coefficient) is not int or type(lower) is not int or type(upper) is not int:
            return None
        if coefficient >= 0:
            low += coefficient * lower
            high += coefficient * upper
        else:
            low += coefficient * upper
            high += coefficient * lower
    return low, high


def prove_nonnegative(value: Any) -> bool | None:
    """True: never negative. False: always negative. None: neither is proven.

    >>> from isa.affine import polynomial, Symbol
    >>> M = polynomial(Symbol("M", 1000))
    >>> prove_nonnegative(M), prove_nonnegative(-M), prove_nonnegative(M - 9)
    (True, False, None)
    """
    low, high = bounds(value)
    if low is not None and low >= 0:
        return True
    return False if high is not None and high < 0 else None


def extremes(value: Any) -> tuple[Any, Any]:
    """Lowest and highest value of an Affine over its variables, as ints or polynomials.

    A variable's own bounds are put in its place, as the sign of its coefficient says, innermost
    (highest number) first, since they may depend on outer variables. None where a bound or a sign
    is unknown; other forms are their own extremes.

    >>> from types import SimpleNamespace
    >>> from isa.affine import affine, polynomial, Symbol
    >>> M = polynomial(Symbol("M", 1000))
    >>> extremes(8 * affine(SimpleNamespace(number=3, lower=0, upper=M - 1)) + 3)
    (3, 8*M - 5)
    """
    if isinstance(value, (int, Polynomial)):
        return value, value
    return _extreme(value, False), _extreme(value, True)


def _extreme(value: Any, highest: bool) -> Any:
    while not isinstance(value, (int, Polynomial)):
        variable, coefficient = value.terms[-1]
        low, high = bounds(coefficient)
        rising = low is not None and low >= 0
        if not rising and (high is None or high > 0):
            return None
        bound = variable.upper if rising == highest else variable.lower
        if bound is None:
            return None
        value = value.without_last() + coefficient * bound
    return value


def derived_bounds(kind: str, left: Any, right: Any) -> tuple[Bound, Bound]:
    """Bounds of a derived atom from those of its operands."""
    (low1, high1), (low2, high2) = bounds(left), bounds(right)
    if kind == "min":
        known = [b for b in (high1, high2) if b is not None]
        low = None if low1 is None or low2 is None else min(low1, low2)
        return low, min(known) if known else None
    if kind == "max":
        known = [b for b in (low1, low2) if b is not None]
        high = None if high1 is None or high2 is None else max(high1, high2)
        return max(known) if known else None, high
    if low2 is None or low2 <= 0:
        return None, None
    # The quotient is monotonic in the dividend and, for a fixed sign of it, in the divisor.
    low = high = None
    if low1 is not None:
        low = low1 // low2 if low1 < 0 else 0 if high2 is None else low1 // high2
    if high1 is not None:
        high = high1 // low2 if high1 >= 0 else -1 if high2 is None else high1 // high2
    return low, high


class _Remainder:
    """r in `dividend = divisor * quotient + r`, for the substitution below."""

    __slots__ = ("high", "key", "low")

    def __init__(self, atom: Derived) -> None:
        self.low = 0
        self.high = atom.operands[1] - 1
        self.key = (2, atom.key)


def _polynomial_bounds(value: Polynomial) -> tuple[Bound, Bound]:
    """Those of constant + factor * rest, where what is left is an integer: bounds are rounded."""
    constant = sum(c for m, c in value.terms if not m)
    factor = gcd(*[c for m, c in value.terms if m])
    forms: list[_Rational] = [{m: Fraction(c, factor) for m, c in value.terms if m}]
    if any(isinstance(a, Derived) for m, _ in value.terms for a in m):
        forms.append(_eliminate_quotients(forms[0]))
    lows = [low for form in forms if (low := _lowest(form)) is not None]
    highs = [
        low for form in forms if (low := _lowest({m: -c for m, c in form.items()})) is not None
    ]
    return (
        constant + factor * ceil(max(lows)) if lows else None,
        constant + factor * floor(-max(highs)) if highs else None,
    )


def _eliminate_quotients(form: _Rational) -> _Rational:
    """Replace every quotient q = n // d by (n - r) / d with a remainder r of its own.

    M - 128*(M//128) becomes r, which interval arithmetic cannot see otherwise.
    """
    result: _Rational = {}
    work = list(form.items())
    while work:
        monomial, coefficient = work.pop()
        for position, atom in enumerate(monomial):
            if (
                isinstance(atom, Derived)
                and atom.kind == "floordiv"
                and isinstance(atom.operands[1], int)
            ):
                others = monomial[:position] + monomial[position + 1 :]
                dividend, divisor = atom.operands
                scale = coefficient / divisor
                for m, c in dividend.terms:
                    work.append((multiply_monomials(others, m), scale * c))
                work.append((multiply_monomials(others, (_Remainder(atom),)), -scale))
                break
        else:
            # Remainders of one quotient share a key, not identity: merge by key.
            result[monomial] = result.get(monomial, Fraction(0)) + coefficient
    merged: dict[Any, tuple[Monomial, Fraction]] = {}
    for monomial, coefficient in result.items():
        key = monomial_key(monomial)
        merged[key] = (monomial, merged.get(key, (monomial, Fraction(0)))[1] + coefficient)
    return {m: c for m, c in merged.values() if c}


def _lowest(form: _Rational) -> Fraction | None:
    """A lower bound of a rational polynomial over bounded atoms.

    Linear forms are exact. Others are expanded around corners of the atoms' box (x = low + t or
    x = high - t), where every term of positive coefficient is at least zero: the best corner wins.
    """
    if all(len(monomial) < 2 for monomial in form):
        return _lowest_linear(form)
    atoms: dict[Any, Any] = {}
    for monomial in form:
        for atom in monomial:
            atoms.setdefault(atom.key, atom)
    if any(a.low is None and a.high is None for a in atoms.values()):
        return None
    corners = [
        [side for side, bound in ((1, a.low), (-1, a.high)) if bound is not None]
        for a in atoms.values()
    ]
    if len(corners) > _MAXIMUM_CORNER_ATOMS:
        choices = [tuple(c[0] for c in corners), tuple(c[-1] for c in corners)]
    else:
        choices = list(product(*corners))
    best: Fraction | None = None
    for choice in choices:
        low = _lowest_around(form, atoms, dict(zip(atoms, choice)))
        if low is not None and (best is None or low > best):
            best = low
    return best


def _lowest_linear(form: _Rational) -> Fraction | None:
    total = Fraction(0)
    for monomial, coefficient in form.items():
        if not monomial:
            total += coefficient
            continue
        bound = monomial[0].low if coefficient > 0 else monomial[0].high
        if bound is None:
            return None
        total += coefficient * bound
    return total


def _lowest_around(
    form: _Rational, atoms: dict[Any, Any], sides: dict[Any, int]
) -> Fraction | None:
    expanded: dict[tuple[Any, ...], Fraction] = {}
    for monomial, coefficient in form.items():
        partial: dict[tuple[Any, ...], Fraction] = {(): coefficient}
        for atom in monomial:
            side = sides[atom.key]
            corner = atom.low if side > 0 else atom.high
            following: dict[tuple[Any, ...], Fraction] = {}
            for keys, c in partial.items():
                if corner:
                    following[keys] = following.get(keys, Fraction(0)) + c * corner
                longer = tuple(sorted((*keys, atom.key)))
                following[longer] = following.get(longer, Fraction(0)) + c * side
            partial = following
        for keys, c in partial.items():
            expanded[keys] = expanded.get(keys, Fraction(0)) + c
    low = expanded.pop((), Fraction(0))
    for keys, c in expanded.items():
        if c < 0:
            for key in keys:
                atom = atoms[key]
                if atom.low is None or atom.high is None:
                    return None
                c *= atom.high - atom.low
            low += c
    return low


def symbol_ranges(symbols: set[Symbol]) -> str:
    """The values of symbols in words, for messages."""
    return ", ".join(f"{s.name} is {s.condition}" for s in sorted(symbols, key=lambda s: s.key))
