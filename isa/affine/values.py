"""Index forms and their values: evaluation, substitution, structure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isa.affine.linear import Affine
from isa.affine.polynomial import Derived, Polynomial, form_key
from isa.affine.symbol import Symbol
from isa.errors import NeuronError


def evaluate(
    value: Any, binding: Mapping[str, int], registers: Mapping[int, int] | None = None
) -> int:
    """The value of a form: `binding` by symbol name, `registers` by variable number.

    Raises guard-refused for a value that its symbol does not admit as a multiple, shape-unsolved
    for a symbol without value, register-arithmetic for a variable without.

    >>> from types import SimpleNamespace
    >>> from isa.affine import affine, polynomial
    >>> i = SimpleNamespace(number=3, name="i", lower=0, upper=7)
    >>> form = 8 * affine(i) + polynomial(Symbol("M", 1000))
    >>> evaluate(form, {"M": 40}, {3: 2})
    56
    """
    if isinstance(value, int):
        return value
    if isinstance(value, Polynomial):
        total = 0
        for monomial, coefficient in value.terms:
            for atom in monomial:
                coefficient *= _atom_value(atom, binding)
            total += coefficient
        return total
    if isinstance(value, Affine):
        total = evaluate(value.constant, binding)
        for variable, coefficient in value.terms:
            if registers is None or variable.number not in registers:
                raise NeuronError(
                    "register-arithmetic", f"`%r{variable.number}` has no value in `{value}`"
                )
            total += evaluate(coefficient, binding) * registers[variable.number]
        return total
    return int(value)


def _atom_value(atom: Any, binding: Mapping[str, int]) -> int:
    if isinstance(atom, Symbol):
        if atom.name not in binding:
            raise NeuronError("shape-unsolved", f"launch symbol {atom.name} has no value")
        quotient, rest = divmod(binding[atom.name], atom.multiple_of)
        if rest:
            raise refused(atom, binding[atom.name])
        return quotient
    left, right = (evaluate(x, binding) for x in atom.operands)
    if atom.kind == "min":
        return min(left, right)
    if atom.kind == "max":
        return max(left, right)
    if right == 0:
        raise NeuronError("integer-division", f"`{atom.operands[1]}` is zero for {dict(binding)}")
    return left // right


def refused(symbol: Symbol, value: int, where: str = "") -> NeuronError:
    """The error for a size that a symbol does not admit; `where` it comes from, in words."""
    source = f" from {where}" if where else ""
    return NeuronError(
        "guard-refused",
        f"{symbol.name} = {value}{source}, but {symbol.name} is {symbol.condition}",
    )


def bind(value: Any, binding: Mapping[str, int]) -> Any:
    """The form with every launch symbol replaced by its value: an int, or an Affine of ints.
    Raises what `evaluate` raises.

    >>> from types import SimpleNamespace
    >>> from isa.affine import affine, polynomial
    >>> i = SimpleNamespace(number=3, name="i", lower=0, upper=7)
    >>> form = 8 * affine(i) + polynomial(Symbol("M", 1000))
    >>> bind(form, {"M": 40})
    8*%r3 + 40
    """
    if isinstance(value, Affine):
        terms = tuple((v, c) for v, old in value.terms if (c := evaluate(old, binding)))
        constant = evaluate(value.constant, binding)
        return Affine(constant, terms) if terms else constant
    return evaluate(value, binding)


def substitute(value: Any, replacements: Mapping[int, Any]) -> Any:
    """The form with variables (by number) replaced by ints, Polynomials or Affines.

    >>> from types import SimpleNamespace
    >>> from isa.affine import affine, polynomial
    >>> i = SimpleNamespace(number=3, name="i", lower=0, upper=7)
    >>> form = 8 * affine(i) + polynomial(Symbol("M", 1000))
    >>> substitute(form, {3: 2})
    M + 16
    """
    if not isinstance(value, Affine):
        return value
    result: Any = value.constant
    kept = []
    for variable, coefficient in value.terms:
        if variable.number in replacements:
            result = result + coefficient * replacements[variable.number]
        else:
            kept.append((variable, coefficient))
    return result + Affine(0, tuple(kept)) if kept else result


def symbols_of(value: Any) -> set[Symbol]:
    """All launch symbols that a form depends on (not those of its variables' bounds).

    >>> from types import SimpleNamespace
    >>> from isa.affine import affine, polynomial
    >>> i = SimpleNamespace(number=3, name="i", lower=0, upper=7)
    >>> form = 8 * affine(i) + polynomial(Symbol("M", 1000))
    >>> [symbol.name for symbol in symbols_of(form)]
    ['M']
    """
    found: set[Symbol] = set()
    work = [value]
    while work:
        form = work.pop()
        if isinstance(form, Affine):
            work.append(form.constant)
            work.extend(coefficient for _, coefficient in form.terms)
        elif isinstance(form, Polynomial):
            for monomial, _ in form.terms:
                for atom in monomial:
                    if isinstance(atom, Derived):
                        work.extend(atom.operands)
                    else:
                        found.add(atom)
    return found


def structure(value: Any) -> Any:
    """A key of an int or a form, equal for identical forms; comparing keys never asks for a
    decision.

    >>> from isa.affine import polynomial
    >>> M = polynomial(Symbol("M", 1000))
    >>> structure(M + 1) == structure(1 + M)
    True
    """
    if type(value) is int:
        return value
    return value.key if isinstance(value, Affine) else form_key(value)


def identical(left: Any, right: Any) -> bool:
    """Whether two forms have the same structure; never asks for a decision.

    >>> from isa.affine import polynomial
    >>> M = polynomial(Symbol("M", 1000))
    >>> identical(M + 1, 1 + M), identical(M, 8)
    (True, False)
    """
    if isinstance(left, Affine):
        return isinstance(right, Affine) and left.key == right.key
    if isinstance(left, Polynomial):
        return isinstance(right, Polynomial) and left.terms == right.terms
    return not isinstance(right, (Affine, Polynomial)) and left == right
