"""A message of the protos as a plain value: its name and the fields that it states."""

from __future__ import annotations

from functools import cache
from typing import Any

from graph_compiler.hlo.proto_fields import MESSAGES, Field


@cache
def fields_of(kind: str) -> dict[str, Field]:
    """The fields of a message by name."""
    return {row.name: row for row in MESSAGES[kind]}


@cache
def default_of(kind: str, name: str) -> Any:
    """What the absence of a field means. Raises KeyError where the message has no such field."""
    return fields_of(kind)[name].default


_LIMITS = {"int32": (-(1 << 31), (1 << 31) - 1), "uint32": (0, (1 << 32) - 1)}
"""Least and most of the integers that are shorter than those of Python's readers, 64 bits."""


def check_numbers(kind: str, values: dict[str, Any]) -> None:
    """Raises ValueError where a number is too long for its field.

    >>> check_numbers("OpMetadata", {"source_line": 1 << 31})
    Traceback (most recent call last):
    ...
    ValueError: source_line is 2147483648, which has more than 32 bits
    """
    fields = fields_of(kind)
    for name, value in values.items():
        limits = _LIMITS.get(fields[name].type) if name in fields else None
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Record):
                check_numbers(item.message, item.values)
            elif limits is not None and not limits[0] <= item <= limits[1]:
                raise ValueError(f"{name} is {item}, which has more than 32 bits")


class Record:
    """A message: `record.NAME` is a field's value, or its default where it is not stated.

    Values are as `graph_compiler.hlo.graph` describes them. Immutable by convention, equal by
    value.

    >>> numbers = Record("DotDimensionNumbers", lhs_contracting_dimensions=(1,))
    >>> numbers.lhs_contracting_dimensions, numbers.lhs_batch_dimensions
    ((1,), ())
    """

    __slots__ = ("message", "unknown", "values")

    message: str
    values: dict[str, Any]
    unknown: bytes

    def __init__(self, message: str, unknown: bytes = b"", /, **values: Any) -> None:
        self.message = message
        self.values = values
        self.unknown = unknown

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = self.values.get(name)
        if value is not None:
            return value
        try:
            return default_of(self.message, name)
        except KeyError:
            raise AttributeError(f"{self.message} has no field {name}") from None

    @property
    def is_empty(self) -> bool:
        """Whether no field is stated."""
        return not self.values and not self.unknown

    def replace(self, **values: Any) -> Record:
        """The same message with other values for the named fields."""
        return Record(self.message, self.unknown, **(self.values | values))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (self.message, self.values, self.unknown) == (
            other.message,
            other.values,
            other.unknown,
        )

    def __hash__(self) -> int:
        return hash((self.message, tuple(self.values)))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.values.items())
        return f"Record({self.message!r}, {values})"
