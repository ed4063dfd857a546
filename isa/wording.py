"""What rows and their fields are called in texts: pages, help and messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import Enum
from typing import Any

from isa.alu import ACTIVATIONS, ALU
from isa.enums import SEQUENCERS, Engine, Memory
from isa.fields import ENUM_KINDS, REQUIRED, Attribute, Field, Kind, Operand
from isa.spec import Row

GENERATIONS = {2: "gen2 (trn1)", 3: "gen3 (trn2)", 4: "gen4 (trn3)"}


def document_name(document: str) -> str:
    """A document as it is cited: pages of the AWS Neuron SDK by their path."""
    return f"SDK {document}" if document.startswith("nki/") else document


def did_you_mean(name: str, names: Iterable[str], cutoff: float = 0.6, quoted: bool = False) -> str:
    """A question after the name that is most like a wrong one; empty where none is like it.

    >>> did_you_mean("laod", ["load", "store"])
    'Did you mean load?'
    """
    close = get_close_matches(name, list(names), 1, cutoff)
    return f"Did you mean {repr(close[0]) if quoted else close[0]}?" if close else ""


def engines(found: Iterable[Engine]) -> str:
    """Engine names in a fixed order; "any sequencer" for all five."""
    members = set(found)
    if members == set(SEQUENCERS):
        return "any sequencer"
    return ", ".join(engine.name for engine in Engine if engine in members)


def generations(found: Iterable[int]) -> str:
    """Generations with the target that stands for each."""
    members = sorted(found)
    return "all" if members == sorted(GENERATIONS) else ", ".join(GENERATIONS[g] for g in members)


def field_kind(field: Field) -> str:
    """What a field is, in a few words."""
    if isinstance(field, Attribute):
        return _KIND_WORDS.get(field.kind.value, field.kind.value.replace("_", " "))
    words = [field.role.value, "column [P, 1]" if field.column else "tensor"]
    if field.immediate:
        words.append("or number")
    if field.vector_offset:
        words.append("(row indices allowed)")
    return " ".join(words)


_KIND_WORDS = {
    "alu": "ALU operator",
    "activation": "activation function",
    "flag": "True or False",
    "accumulate": "True, False or None (inferred)",
    "pattern": "[step, count] pairs",
    "integers": "integers",
    "numbers": "list of numbers",
    "value": "integer or register",
    "priority": "0 to 3, or None",
    "target": "index of an instruction",
    "float32": "number (fp32)",
}


def where(field: Field) -> str:
    """The memories and dtypes of an operand; the limits or choices of an attribute."""
    if isinstance(field, Operand):
        places = ", ".join(m.value for m in Memory if m in field.memories)
        return places + (f"; {', '.join(sorted(field.dtypes))}" if field.dtypes else "")
    if field.limits is not None:
        return "{} to {}".format(*field.limits)
    choices = field.choices or tuple(ENUM_KINDS.get(field.kind, ()))
    return ", ".join(getattr(choice, "name", str(choice)) for choice in choices)


def functions(row: type[Row], name: str) -> tuple[str, ...]:
    """The operators or activation functions that a field takes, as its row's rules have it; empty
    for a field of another kind.

    >>> from isa.operations import OPERATIONS
    >>> functions(OPERATIONS["range_select"], "reduce_op")
    ('maximum',)
    """
    kind = getattr(row.fields.get(name), "kind", None)
    if kind is Kind.activation:
        return tuple(ACTIVATIONS)
    if kind is not Kind.alu:
        return ()
    left = set(ALU.values())
    for rule in getattr(row, "rules", ()):
        left &= rule.operators.get(name, left)
    return tuple(op.name for op in ALU.values() if op in left)


def default_text(field: Field) -> str:
    """Whether a field is required, or its default in code font."""
    if field.default is REQUIRED:
        return "may be None" if field.optional else "required"
    return f"`{value_text(field.default)}`"


def value_text(value: Any) -> str:
    """A default or attribute value: enum members and table rows by name."""
    if isinstance(value, Enum) or hasattr(value, "name"):
        return str(value.name)
    return repr(value)
