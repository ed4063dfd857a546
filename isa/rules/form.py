"""The form of a rule, and what rules ask of operands.

A rule looks at an `OperationCall` (an operation's values by field name, plus the target) and
returns None or a `Violation`. Rules see only memories, dtypes, shapes, start partitions and
attributes, so their verdict can be remembered for all calls of the same signature.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from isa.affine import bounds
from isa.alu import AluOperator
from isa.enums import Memory
from isa.errors import NeuronError
from isa.target import Target


@dataclass(frozen=True, slots=True)
class Violation:
    """What a rule found: an error code of the catalogue, and its texts.

    Without `why` or `hint` the catalogue's are meant. `operand` is the field to point at.
    """

    code: str
    what: str
    why: str = ""
    hint: str = ""
    operand: str | None = None

    def error(self, location: Any = None) -> NeuronError:
        """The error to raise for it."""
        return NeuronError(self.code, self.what, self.why, self.hint, location)


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What is allowed and probably a mistake: a warning of the catalogue (`isa.errors.warned`), and
    what finds it in a call: the text, or None."""

    code: str
    check: Callable[[OperationCall], str | None]


class OperationCall:
    """One use of an operation, as rules see it: `call.dst`, `call.op`, `call.target`."""

    def __init__(self, names: tuple[str, ...], values: tuple[Any, ...], target: Target) -> None:
        self.__dict__.update(zip(names, values))
        self.names = names
        self.values = values
        self.target = target

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def field(self, name: str | None, default: Any = None) -> Any:
        """The value of a field, or the default where the operation has no such field."""
        return default if name is None else self.__dict__.get(name, default)

    def tensors(self) -> list[tuple[str, Any]]:
        """The tensor operands that were given, with their names."""
        return [(n, v) for n, v in zip(self.names, self.values) if is_tensor(v)]


OWN_PAGE = ""
"""The document of rules that each operation's own page states."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A named constraint.

    `document` is the page and section that states it, or OWN_PAGE, `text` the constraint in a
    sentence, in terms of the row's fields. `operators` has the ALU operators that the rule leaves
    to fields, by name of the field."""

    name: str
    document: str
    check: Callable[[OperationCall], Violation | None]
    text: str
    operators: Mapping[str, frozenset[AluOperator]] = field(default_factory=dict)


def rule(
    document: str, text: str, operators: Mapping[str, frozenset[AluOperator]] | None = None
) -> Callable[[Callable[[OperationCall], Violation | None]], Rule]:
    """Makes a rule, called as the function is, of the function that checks it."""

    def made(check: Callable[[OperationCall], Violation | None]) -> Rule:
        return Rule(check.__name__, document, check, text, operators or {})

    return made


def is_tensor(value: Any) -> bool:
    """Whether an operand's value is a tensor access, not a number or None."""
    return hasattr(value, "storage")


def is_number(value: Any) -> bool:
    """Whether a value is an int or float (bool and numpy scalars included)."""
    return isinstance(value, (int, float)) or (
        hasattr(value, "dtype") and hasattr(value, "item") and getattr(value, "ndim", 1) == 0
    )


def fits_word(value: Any) -> bool:
    """Whether a number is no integer of more than 64 bits, which instructions cannot hold."""
    return not isinstance(value, int) or -(1 << 63) <= value < 1 << 63


def partitions(access: Any) -> Any:
    """Partition count of an on-chip access."""
    return access.shape[0] if access.shape else 1


def free_elements(access: Any) -> Any:
    """Elements per partition of an on-chip access."""
    return math.prod(access.shape[1:])


def stored_elements(access: Any) -> Any:
    """Elements of a partition that an on-chip access touches; what a stride of 0 repeats is one."""
    return math.prod(
        size
        for size, stride in zip(access.shape[1:], access.strides[1:])
        if not (type(stride) is int and stride == 0)
    )


def elements(access: Any) -> Any:
    """All elements of an access."""
    return math.prod(access.shape)


def at_most(size: Any, limit: int) -> bool:
    """Whether a size is at most the limit for every value of the launch symbols."""
    high = bounds(size)[1]
    return high is not None and high <= limit


def largest(size: Any) -> str:
    """A size for a message: `M, up to 8192` where it depends on symbols."""
    high = bounds(size)[1]
    return str(size) if isinstance(size, int) else f"{size} (up to {high or 'any size'})"


def in_psum(access: Any) -> bool:
    return is_tensor(access) and access.storage.memory is Memory.psum


def shape_text(access: Any) -> str:
    return f"[{', '.join(str(s) for s in access.shape)}]"


def shown(value: Any) -> str:
    """A value as a message shows it: the public name where it has one, arrays in short."""
    name, dtype, shape = (getattr(value, field, None) for field in ("name", "dtype", "shape"))
    if isinstance(name, str):
        return name
    if dtype is not None and isinstance(shape, tuple):
        return f"an array {dtype}{list(shape)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{type(value).__name__} {text[:50]}..."


def listed(names: Sequence[str], last: str = "and") -> str:
    """Field names for a sentence: `dst, data1 and data2`."""
    *others, final = names
    return f"{', '.join(others)} {last} {final}" if others else final


def plural(count: Any, noun: str) -> str:
    return f"{count} {noun}" if isinstance(count, int) and count == 1 else f"{count} {noun}s"
