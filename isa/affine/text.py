"""Index forms as Python-like text, and back.

    form    = product (("+" | "-") product)*
    product = unary (("*" | "//" | "%") unary)*
    unary   = "-" unary | integer | symbol | "%r" number | "(" form ")"
            | ("min" | "max") "(" form "," form ")"

`%r` directly before a number, where an operand may stand, is a register; else `%` is the remainder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import gcd, lcm
from typing import Any

from isa.affine.linear import Affine, affine
from isa.affine.polynomial import (
    Derived,
    Monomial,
    Polynomial,
    atom_polynomial,
    maximum,
    minimum,
    polynomial,
    split,
)
from isa.affine.predicate import Predicate
from isa.affine.symbol import Symbol
from isa.errors import NeuronError

_SIMPLE = re.compile(r"[\w*]+\Z")


def format_polynomial(value: Polynomial) -> str:
    """Python-like text of a polynomial; `parse_form` reads it back."""
    parts: list[str] = []
    rest: Any = value
    for monomial, coefficient in value.terms:
        folded = _remainder(rest, monomial, coefficient)
        if folded is not None:
            rest, text = folded
            parts.append(text)
    terms = rest.terms if isinstance(rest, Polynomial) else (((), rest),) if rest else ()
    return _join(
        [_term(m, c) for m, c in terms if m] + parts + [_term(*t) for t in terms if not t[0]]
    )


def format_affine(value: Affine, named: bool = False) -> str:
    """Python-like text of an affine form; registers print as %r<number>, or by their names."""
    parts = []
    for variable, coefficient in value.terms:
        name = variable.name if named and variable.name else f"%r{variable.number}"
        if isinstance(coefficient, Polynomial):
            text = str(coefficient)
            parts.append(f"{text}*{name}" if _SIMPLE.match(text) else f"({text})*{name}")
        elif coefficient in (1, -1):
            parts.append(name if coefficient == 1 else f"-{name}")
        else:
            parts.append(f"{coefficient}*{name}")
    if isinstance(value.constant, Polynomial) or value.constant:
        parts.append(str(value.constant))
    return _join(parts)


def in_words(value: Any) -> str:
    """A form for messages: registers and loop variables by the author's names.

    >>> from types import SimpleNamespace
    >>> from isa.affine import affine
    >>> i = SimpleNamespace(number=3, name="i", lower=0, upper=7)
    >>> in_words(8 * affine(i) + 1)
    '8*i + 1'
    """
    if isinstance(value, Affine):
        return format_affine(value, named=True)
    return getattr(value, "name", "") or str(value)


def variable_ranges(value: Any) -> str:
    """The values of a form's loop variables in words, for messages; empty where none is known.

    >>> from types import SimpleNamespace
    >>> from isa.affine import affine
    >>> i = SimpleNamespace(number=3, name="i", lower=0, upper=7)
    >>> variable_ranges(8 * affine(i))
    'i is 0 to 7'
    """
    terms = value.terms if isinstance(value, Affine) else ()
    known = [v for v, _ in terms if v.lower is not None and v.upper is not None]
    return ", ".join(f"{in_words(v)} is {in_words(v.lower)} to {in_words(v.upper)}" for v in known)


def _join(parts: list[str]) -> str:
    text = parts[0]
    for part in parts[1:]:
        text += f" - {part[1:]}" if part.startswith("-") else f" + {part}"
    return text


def _needed(monomial: Monomial) -> int:
    """What a coefficient must be a multiple of, for the monomial to print without divisions."""
    product = 1
    for atom in monomial:
        if isinstance(atom, Symbol):
            product *= atom.multiple_of
    return product


def _term(monomial: Monomial, coefficient: int) -> str:
    sign, coefficient = ("-", -coefficient) if coefficient < 0 else ("", coefficient)
    factors = []
    for atom in monomial:
        if isinstance(atom, Symbol):
            common = gcd(coefficient, atom.multiple_of)
            coefficient //= common
            divisor = atom.multiple_of // common
            factors.append(atom.name if divisor == 1 else f"{atom.name}//{divisor}")
        elif atom.kind == "floordiv":
            factors.append(_division(atom.operands[0], atom.operands[1], "//"))
        else:
            factors.append(f"{atom.kind}({atom.operands[0]}, {atom.operands[1]})")
    if coefficient != 1 or not factors:
        factors.insert(0, str(coefficient))
    if len(factors) == 1 and not sign:
        return factors[0]
    return sign + "*".join(f if _is_factor(f) else f"({f})" for f in factors)


def _is_factor(text: str) -> bool:
    """Whether text needs no parentheses as a factor: a product, or one call of min or max."""
    if not text.startswith(("min(", "max(")):
        return bool(_SIMPLE.match(text))
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == ")" and depth == 0:
            return position == len(text) - 1
    return False


def _division(dividend: Any, divisor: Any, operator: str) -> str:
    if isinstance(divisor, int) and isinstance(dividend, Polynomial):
        scale = _scale(dividend)
        dividend, divisor = dividend * scale, divisor * scale
    left, right = str(dividend), str(divisor)
    left = left if _is_factor(left) else f"({left})"
    return f"{left}{operator}{right}" if _is_factor(right) else f"{left}{operator}({right})"


def _scale(dividend: Polynomial) -> int:
    """The factor that lets every term of a dividend print without divisions of its own."""
    return lcm(*(_needed(m) // gcd(c, _needed(m)) for m, c in dividend.terms))


def _remainder(rest: Any, monomial: Monomial, coefficient: int) -> tuple[Any, str] | None:
    """Where `rest` holds k * (n - d * (n // d)) for this quotient: what is left, and k*(n % d)."""
    if len(monomial) != 1 or not isinstance(monomial[0], Derived):
        return None
    atom = monomial[0]
    if atom.kind != "floordiv" or not isinstance(atom.operands[1], int):
        return None
    dividend, divisor = atom.operands
    times, inexact = divmod(-coefficient, divisor)
    if inexact or times == 0:
        return None
    left = rest - times * (dividend - divisor * atom_polynomial(atom))
    if len(split(left)[0]) != len(split(rest)[0]) - len(split(dividend)[0]) - 1:
        return None
    scale = _scale(dividend)
    if times % scale:
        return None
    text = _division(dividend, divisor, "%")
    times //= scale
    if times == 1:
        return left, text
    return left, f"-({text})" if times == -1 else f"{times}*({text})"


def parse_form(text: str, symbols: Mapping[str, Symbol], registers: Mapping[str, Any]) -> Any:
    """The form that prints as `text`: an int, Polynomial or Affine.

    `registers` maps printed names ("%r3") to variables. Raises ir-syntax.

    >>> parse_form("8*M + 3", {"M": Symbol("M", 1000)}, {})
    8*M + 3
    """
    if text.isdigit():
        return int(text)
    parser = _FormParser(text, symbols, registers)
    form = parser.form()
    parser.finish()
    return form


def parse_predicate(
    text: str, symbols: Mapping[str, Symbol], registers: Mapping[str, Any]
) -> Predicate:
    """The predicate that prints as `text`. Raises ir-syntax.

    >>> parse_predicate("M <= 500", {"M": Symbol("M", 1000)}, {})
    M <= 500
    """
    parser = _FormParser(text, symbols, registers)
    left = parser.form()
    op = parser.take()
    if op not in ("<", "<=", ">", ">=", "==", "!="):
        raise parser.error("expected a comparison")
    predicate = Predicate(left - parser.form(), op)
    parser.finish()
    return predicate


_TOKEN = re.compile(r"\s*(\d+|[^\W\d]\w*|//|<=|>=|==|!=|[-+*%(),<>])")
_REGISTER = re.compile(r"\s*(%r\d+)")


class _FormParser:
    """Recursive descent over the tokens of one form."""

    def __init__(
        self, text: str, symbols: Mapping[str, Symbol], registers: Mapping[str, Any]
    ) -> None:
        self.text = text
        self.symbols = symbols
        self.registers = registers
        self.tokens: list[str] = []
        position, end = 0, len(text.rstrip())
        operand_follows = True
        while position < end:
            match = _REGISTER.match(text, position) if operand_follows else None
            match = match or _TOKEN.match(text, position)
            if match is None:
                raise self.error(f"unexpected {text[position]!r}")
            token = match[1]
            self.tokens.append(token)
            operand_follows = not (token[0].isalnum() or token[0] in "_)" or len(token) > 2)
            position = match.end()
        self.position = 0

    def error(self, what: str) -> NeuronError:
        return NeuronError("ir-syntax", f"index form {self.text!r}: {what}")

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.position += 1
        return token

    def expect(self, token: str) -> None:
        if self.take() != token:
            raise self.error(f"expected {token!r}")

    def finish(self) -> None:
        if self.position < len(self.tokens):
            raise self.error(f"unexpected {self.peek()!r}")

    def form(self) -> Any:
        value = self.product()
        while self.peek() in ("+", "-"):
            value = value + self.product() if self.take() == "+" else value - self.product()
        return value

    def product(self) -> Any:
        value = self.unary()
        while self.peek() in ("*", "//", "%"):
            operator = self.take()
            right = self.unary()
            if operator == "*":
                value = value * right
            elif isinstance(right, int) and right == 0:
                raise self.error("division by zero")
            else:
                value = value // right if operator == "//" else value % right
        return value

    def unary(self) -> Any:
        token = self.take()
        if token == "-":
            return -self.unary()
        if token == "(":
            value = self.form()
            self.expect(")")
            return value
        if token.isdigit():
            return int(token)
        if token in ("min", "max"):
            self.expect("(")
            left = self.form()
            self.expect(",")
            right = self.form()
            self.expect(")")
            return minimum(left, right) if token == "min" else maximum(left, right)
        if token in self.registers:
            return affine(self.registers[token])
        if token in self.symbols:
            return polynomial(self.symbols[token])
        raise self.error(f"unknown name {token!r}" if token else "it ends early")
