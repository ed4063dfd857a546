"""Integer polynomials over launch symbols, canonical and immutable.

A symbol that is a multiple of m enters as m times an atom that stands for symbol / m. So `M // 128`
of a multiple of 128 is again a polynomial and cancels against M. A floor division that is not exact
becomes a `Derived` atom in a normal form; a remainder is `a - b * (a // b)`.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import lru_cache
from math import gcd
from typing import Any

from isa.affine.symbol import KEPT, Symbol
from isa.errors import NeuronError

Atom = Any  # Symbol | Derived
Monomial = tuple[Atom, ...]


class Derived:
    """An atom that is a function of polynomials: `floordiv` (operands: dividend, positive
    divisor), `min` or `max`. `low` and `high` bound its value.

    >>> from isa.affine import Symbol
    >>> Derived("floordiv", polynomial(Symbol("M", 1000)), 16)
    Derived('floordiv', M, 16)
    """

    __slots__ = ("_hash", "high", "key", "kind", "low", "operands")

    kind: str
    operands: tuple[Any, Any]
    low: int | None
    high: int | None
    key: tuple[Any, ...]
    _hash: int

    def __new__(cls, kind: str, left: Any, right: Any) -> Derived:
        return _derived(kind, left, right)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Derived) and self.key == other.key)

    def __reduce__(self) -> tuple[Any, ...]:
        return Derived, (self.kind, *self.operands)

    def __repr__(self) -> str:
        return f"Derived({self.kind!r}, {self.operands[0]}, {self.operands[1]})"


@lru_cache(maxsize=KEPT)
def _derived(kind: str, left: Any, right: Any) -> Derived:
    from isa.affine.bounds import derived_bounds

    atom = object.__new__(Derived)
    atom.kind = kind
    atom.operands = (left, right)
    atom.key = (1, kind, form_key(left), form_key(right))
    atom._hash = hash(atom.key)
    atom.low, atom.high = derived_bounds(kind, left, right)
    return atom


def form_key(value: Any) -> tuple[Any, ...]:
    """A sortable, hashable picture of an int's or a polynomial's structure."""
    if isinstance(value, Polynomial):
        return tuple((monomial_key(m), _natural(c)) for m, c in value.terms)
    return (((0, ()), _natural(value)),)


def _natural(value: int) -> int:
    """The integers as naturals: hash(-1) == hash(-2), and `==` after a collision is a question."""
    return 2 * value if value >= 0 else -2 * value - 1


def monomial_key(monomial: Monomial) -> tuple[Any, ...]:
    """Graded lexicographic order: highest degree first, the constant last."""
    return -len(monomial), tuple(atom.key for atom in monomial)


class Compared:
    """Comparisons of a form by its `_compare`."""

    __slots__ = ()

    def __lt__(self, other: Any) -> Any:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Any:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Any:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Any:
        return self._compare(">=", other)

    @abstractmethod
    def _compare(self, operator: str, other: Any) -> Any:
        """A bool where bounds decide it, else a Predicate."""


class Polynomial(Compared):
    """An integer polynomial over atoms that is not a constant.

    `terms` are (monomial, coefficient) pairs in canonical order; a monomial is the sorted tuple of
    its atoms, with repetition. Build one with `polynomial(symbol)` and arithmetic. `//` and `%`
    take a non-zero int or a Polynomial.

    >>> M = polynomial(Symbol("M", 8192, multiple_of=128))
    >>> (M // 128) * 128 - M
    0
    >>> print((M + 64) // 256, 3 * M - 1)
    M//256 3*M - 1
    """

    __slots__ = ("_bounds", "_hash", "_sympy", "terms")

    terms: tuple[tuple[Monomial, int], ...]
    _bounds: tuple[int | None, int | None] | None
    _hash: int
    _sympy: Any
    __array_ufunc__ = None  # a numpy integer on the left leaves the operation to us

    def __new__(cls, terms: tuple[tuple[Monomial, int], ...]) -> Polynomial:
        return _polynomial(terms)

    def __add__(self, other: Any) -> Any:
        other = operand(other)
        return NotImplemented if other is None else _add(self, other)

    __radd__ = __add__

    def __neg__(self) -> Any:
        return _multiply(self, -1)

    def __pos__(self) -> Any:
        return self

    def __sub__(self, other: Any) -> Any:
        other = operand(other)
        return NotImplemented if other is None else _add(self, -other)

    def __rsub__(self, other: Any) -> Any:
        other = operand(other)
        return NotImplemented if other is None else _add(_multiply(self, -1), other)

    def __mul__(self, other: Any) -> Any:
        other = operand(other)
        return NotImplemented if other is None else _multiply(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        other = operand(other)
        return NotImplemented if other is None else floor_division(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        other = operand(other)
        return NotImplemented if other is None else floor_division(other, self)

    def __mod__(self, other: Any) -> Any:
        other = operand(other)
        return NotImplemented if other is None else self - other * floor_division(self, other)

    def __rmod__(self, other: Any) -> Any:
        other = operand(other)
        return NotImplemented if other is None else other - self * floor_division(other, self)

    def __divmod__(self, other: Any) -> Any:
        quotient = self // other
        return quotient, self - quotient * other

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Polynomial):
            if self.terms == other.terms:
                return True
        elif operand(other) is None:
            return NotImplemented
        from isa.affine.predicate import decide_equality

        return decide_equality(self, other)

    def __hash__(self) -> int:
        return self._hash

    def _compare(self, operator: str, other: Any) -> Any:
        if operand(other) is None:
            return NotImplemented
        from isa.affine.predicate import compare

        return compare(self, operator, other)

    def __bool__(self) -> bool:
        from isa.affine.predicate import compare

        return bool(compare(self, "!=", 0))

    def __index__(self) -> int:
        raise NeuronError("symbol-index", f"`{self}` is needed as a plain integer here")

    __int__ = __index__

    def __float__(self) -> float:
        raise NeuronError("symbol-index", f"`{self}` is needed as a plain number here")

    def __truediv__(self, other: Any) -> Any:
        raise _fraction(f"{self} / {other}")

    def __rtruediv__(self, other: Any) -> Any:
        raise _fraction(f"{other} / {self}")

    def __pow__(self, exponent: Any) -> Any:
        if not isinstance(exponent, int) or exponent < 0:
            return NotImplemented
        result: Any = 1
        for _ in range(exponent):
            result = self * result
        return result

    @property
    def sympy(self) -> Any:
        """The same expression in sympy."""
        if self._sympy is None:
            from isa.affine.solve import to_sympy

            self._sympy = to_sympy(self)
        return self._sympy

    def __str__(self) -> str:
        from isa.affine.text import format_polynomial

        return format_polynomial(self)

    __repr__ = __str__

    def __reduce__(self) -> tuple[Any, ...]:
        return Polynomial, (self.terms,)


@lru_cache(maxsize=KEPT)
def _polynomial(terms: tuple[tuple[Monomial, int], ...]) -> Polynomial:
    form = object.__new__(Polynomial)
    form.terms = terms
    form._hash = hash(tuple((m, _natural(c)) for m, c in terms))
    form._bounds = None
    form._sympy = None
    return form


def _fraction(text: str) -> NeuronError:
    return NeuronError(
        "symbol-index",
        f"`{text}` is a fraction",
        why="Sizes and offsets are integers, also where their values are not known yet.",
        hint="Divide with `//`, or with `-(-a // b)` to round up.",
    )


def polynomial(symbol: Symbol) -> Polynomial:
    """The polynomial whose value is the symbol's.

    >>> from isa.affine import Symbol
    >>> M = polynomial(Symbol("M", 1000))
    >>> (M + 1) * (M - 1)
    M*M - 1
    """
    return _polynomial((((symbol,), symbol.multiple_of),))


def atom_polynomial(atom: Derived) -> Polynomial:
    """The polynomial whose value is the derived atom's."""
    return _polynomial((((atom,), 1),))


def operand(value: Any) -> Any:
    """`value` as an operand of polynomial arithmetic (a plain int or a Polynomial), else None."""
    kind = type(value)
    if kind is int or kind is Polynomial:
        return value
    if kind is float or value is None or kind is str or kind.__name__ == "Affine":
        return None
    index = getattr(kind, "__index__", None)
    return None if index is None else int(index(value))


def collect(terms: dict[Monomial, int]) -> int | Polynomial:
    """The canonical form of a sum of terms."""
    kept = [item for item in terms.items() if item[1]]
    if not kept:
        return 0
    if len(kept) == 1:
        monomial, coefficient = kept[0]
        return _polynomial(tuple(kept)) if monomial else coefficient
    kept.sort(key=lambda item: monomial_key(item[0]))
    return _polynomial(tuple(kept))


def split(value: int | Polynomial) -> tuple[dict[Monomial, int], int]:
    """The non-constant terms, and the constant."""
    if not isinstance(value, Polynomial):
        return {}, value
    terms = dict(value.terms)
    return terms, terms.pop((), 0)


@lru_cache(maxsize=KEPT)
def _add(left: Polynomial, right: int | Polynomial) -> int | Polynomial:
    terms = dict(left.terms)
    for monomial, coefficient in right.terms if isinstance(right, Polynomial) else (((), right),):
        terms[monomial] = terms.get(monomial, 0) + coefficient
    return collect(terms)


@lru_cache(maxsize=KEPT)
def _multiply(left: Polynomial, right: int | Polynomial) -> int | Polynomial:
    if not isinstance(right, Polynomial):
        return collect({m: c * right for m, c in left.terms})
    terms: dict[Monomial, int] = {}
    for m1, c1 in left.terms:
        for m2, c2 in right.terms:
            monomial = multiply_monomials(m1, m2)
            terms[monomial] = terms.get(monomial, 0) + c1 * c2
    return collect(terms)


def multiply_monomials(left: Monomial, right: Monomial) -> Monomial:
    if not left:
        return right
    if not right:
        return left
    return tuple(sorted(left + right, key=lambda atom: atom.key))


@lru_cache(maxsize=KEPT)
def floor_division(left: int | Polynomial, right: int | Polynomial) -> int | Polynomial:
    """floor(left / right). Raises integer-division for a zero divisor."""
    if isinstance(right, int):
        if right == 0:
            raise NeuronError("integer-division", f"`{left}` is divided by zero")
        if isinstance(left, int):
            return left // right
        return _floor_by_int(left, right) if right > 0 else _floor_by_int(-left, -right)
    if isinstance(left, int) and left == 0:
        return 0
    quotient = exact_quotient(left, right)
    if quotient is not None:
        return quotient
    from isa.affine.bounds import bounds

    low, high = bounds(right)
    if high is not None and high < 0:
        return floor_division(-left, -right)
    if low is not None and low > 0:
        remainder_low, _ = bounds(left)
        _, above = bounds(left - right)
        if remainder_low is not None and remainder_low >= 0 and above is not None and above < 0:
            return 0
    return atom_polynomial(Derived("floordiv", left, right))


def _floor_by_int(value: int | Polynomial, divisor: int) -> int | Polynomial:
    """floor(value / divisor) in normal form: whole multiples go out, the leading coefficient of
    what remains is positive, common factors cancel, the constant is below the divisor."""
    terms, constant = split(value)
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in terms.items():
        quotient = abs(coefficient) // divisor * (1 if coefficient > 0 else -1)
        whole[monomial] = quotient
        if coefficient != quotient * divisor:
            rest[monomial] = coefficient - quotient * divisor
    outside = collect(whole)
    if not rest:
        return outside + constant // divisor
    leading = min(rest, key=monomial_key)
    if rest[leading] < 0:
        negated = collect({m: -c for m, c in rest.items()})
        return outside - _floor_by_int(negated + (divisor - 1 - constant), divisor)
    common = gcd(divisor, *rest.values())
    if common > 1:
        reduced = collect({m: c // common for m, c in rest.items()}) + constant // common
        return outside + _floor_by_int(reduced, divisor // common)
    outside += constant // divisor
    inner = collect(rest) + constant % divisor
    if len(rest) == 1 and rest[leading] == 1 and len(leading) == 1:
        atom = leading[0]
        if isinstance(atom, Derived) and atom.kind == "floordiv":
            dividend, step = atom.operands
            if isinstance(step, int):
                return outside + _floor_by_int(
                    dividend + step * (constant % divisor), step * divisor
                )
    from isa.affine.bounds import bounds

    low, high = bounds(inner)
    if low is not None and high is not None and low // divisor == high // divisor:
        return outside + low // divisor
    return outside + atom_polynomial(Derived("floordiv", inner, divisor))


def exact_quotient(left: int | Polynomial, right: int | Polynomial) -> int | Polynomial | None:
    """left / right where it is a polynomial with integer coefficients, else None.

    >>> from isa.affine import Symbol
    >>> M, N = (polynomial(Symbol(name, 1000)) for name in "MN")
    >>> exact_quotient(M * N + 4 * N, N), exact_quotient(M, 16)
    (M + 4, None)
    """
    if isinstance(right, int):
        if isinstance(left, int):
            return left // right if left % right == 0 else None
        if any(c % right for _, c in left.terms):
            return None
        return collect({m: c // right for m, c in left.terms})
    lead, scale = right.terms[0]
    result: dict[Monomial, int] = {}
    remainder: Any = left
    while isinstance(remainder, Polynomial):
        monomial, coefficient = remainder.terms[0]
        factor = _monomial_quotient(monomial, lead)
        if factor is None or coefficient % scale:
            return None
        step = collect({factor: coefficient // scale})
        result[factor] = result.get(factor, 0) + coefficient // scale
        remainder = remainder - step * right
    return collect(result) if remainder == 0 else None


def _monomial_quotient(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    atoms = list(monomial)
    for atom in divisor:
        if atom not in atoms:
            return None
        atoms.remove(atom)
    return tuple(atoms)


def ceil_division(left: Any, right: Any) -> Any:
    """ceil(left / right) of ints or polynomials.

    >>> from isa.affine import Symbol
    >>> ceil_division(9, 8), ceil_division(polynomial(Symbol("M", 1000)), 8)
    (2, (M + 7)//8)
    """
    return -(-left // right)


def minimum(left: Any, right: Any) -> Any:
    """The smaller of two ints or polynomials, decided by bounds where they decide it.
    Raises register-arithmetic for other forms.

    >>> from isa.affine import Symbol
    >>> M = polynomial(Symbol("M", 1000))
    >>> minimum(M, 2000), minimum(M, 500)
    (M, min(M, 500))
    """
    return _extremum("min", left, right)


def maximum(left: Any, right: Any) -> Any:
    """The larger of two ints or polynomials, decided by bounds where they decide it.
    Raises register-arithmetic for other forms.

    >>> from isa.affine import Symbol
    >>> maximum(polynomial(Symbol("M", 1000)), 1)
    M
    """
    return _extremum("max", left, right)


def _extremum(kind: str, left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        return min(left, right) if kind == "min" else max(left, right)
    if operand(left) is None or operand(right) is None:
        raise NeuronError("register-arithmetic", f"`{kind}({left}, {right})` is no index form")
    from isa.affine.bounds import bounds

    low, high = bounds(left - right)
    if low is not None and low >= 0:
        return right if kind == "min" else left
    if high is not None and high <= 0:
        return left if kind == "min" else right
    first, second = sorted((left, right), key=form_key)
    return atom_polynomial(Derived(kind, first, second))
