"""What a machine row computes element by element, stated once, in the row.

A meaning is a term over the row's fields, by their names, and says whether each partition's results
are folded into its accumulate register. The NumPy oracle, native code, the marks of initialised
elements and the effects on engine state all follow from it. Operators are those of `isa.alu`, whose
own meanings are expressions of `isa.scalar`. It is computed in fp32 unless `numbers` says other.

    Meaning(activation("exp", alu("subtract", Element("src"), Element("maximum"))),
            Fold("add", initial="initial"))
"""

from __future__ import annotations

from dataclasses import dataclass


class Term:
    """A value for each element of the result."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Element(Term):
    """The element of an operand; one of a column, or a number, serves a whole partition."""

    field: str


@dataclass(frozen=True, slots=True)
class Pattern(Term):
    """The bits of an operand's element, as a number without sign."""

    field: str


@dataclass(frozen=True, slots=True)
class Position(Term):
    """The element's number in its partition, counted from what an integer field says."""

    start: str


@dataclass(frozen=True, slots=True)
class AffineNumber(Term):
    """The whole number of 32 bits that fields say of an element's place: `offset`, and what each
    partition and each index of `pattern` adds. Operators on it compute in int32."""

    pattern: str
    offset: str
    multiplier: str


@dataclass(frozen=True, slots=True)
class Previous(Term):
    """The result for the element before, in fp32; for a partition's first, what a field holds."""

    initial: str


@dataclass(frozen=True, slots=True)
class Number(Term):
    """The same number everywhere."""

    value: float


@dataclass(frozen=True, slots=True)
class Unchanged(Term):
    """What the destination holds, which is not read."""


@dataclass(frozen=True, slots=True)
class Named:
    """The operator that a field of the row holds."""

    field: str


@dataclass(frozen=True, slots=True)
class Apply(Term):
    """An operator of a table, "alu" or "activation", on as many of the terms as it takes; on the
    second and the first where the flag `reverse` is set. Without an operator, or where the second
    term is an operand that is None, it is the first term."""

    table: str
    operator: str | Named
    terms: tuple[Term, ...]
    reverse: str | None = None


@dataclass(frozen=True, slots=True)
class Choose(Term):
    """`chosen` where the condition is not zero, else `other`; the other way round where the flag
    `reverse` is set. An element that is not chosen is not read."""

    condition: Term
    chosen: Term
    other: Term
    reverse: str | None = None


@dataclass(frozen=True, slots=True)
class Fold:
    """Each partition's results, before they are rounded to the destination's dtype, are folded by
    an operator into its accumulate register, as a field with a reduce command says. `initial`: the
    field that load_reduce loads. With `running` each element of the destination is what the
    register holds once the element is folded in."""

    operator: str | Named
    command: str = "reduce_command"
    initial: str | None = None
    running: bool = False


@dataclass(frozen=True, slots=True)
class NumberDomain:
    """Where the operator that a field holds is a bit-vector one, all is computed on bit patterns,
    which the widest operand is as wide as. With `integers`, GpSimd computes on integers of 32 bits
    if all operands are such; of signed and unsigned ones on their values."""

    operator: str
    integers: bool = False


@dataclass(frozen=True, slots=True)
class Meaning:
    """The first field, the destination, = `result`, in fp32 unless `numbers` says other. What
    `copies` takes each element as it is: bit for bit where the dtypes are equal, else through
    fp32."""

    result: Term
    fold: Fold | None = None
    numbers: NumberDomain | None = None
    copies: bool = False


def alu(operator: str | Named, *terms: Term, reverse: str | None = None) -> Term:
    """An ALU operator."""
    return Apply("alu", operator, terms, reverse)


def activation(operator: str | Named, *terms: Term) -> Term:
    """A function of the scalar engine's tables."""
    return Apply("activation", operator, terms)


def contains(term: Term, *kinds: type[Term]) -> bool:
    """Whether a term, or one that it is made of, is of one of these kinds."""
    return isinstance(term, kinds) or any(contains(part, *kinds) for part in parts(term))


def parts(term: Term) -> tuple[Term, ...]:
    """The terms that a term is made of."""
    if isinstance(term, Apply):
        return term.terms
    if isinstance(term, Choose):
        return (term.condition, term.chosen, term.other)
    return ()
