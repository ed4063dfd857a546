"""What an attribute of HLO text is, and the forms that most have: numbers, words, parts of records.

`show` gives the text, or None where an instruction does not state the attribute; `read` puts the
value into the attributes under the names of the proto's fields. It raises ValueError where it
cannot.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graph_compiler.hlo.graph import Instruction
from graph_compiler.hlo.proto_fields import ENUMERATIONS
from graph_compiler.hlo.record import Record, fields_of
from graph_compiler.hlo.text_forms import joined
from graph_compiler.hlo.text_scan import boolean, integer, integers, quote, string

Show = Callable[[Instruction], str | None]
Read = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class TextAttribute:
    """An attribute of HLO text. `only` and `never`: opcodes that show it, or do not.

    `field`: the field of the proto that it states alone; "" where it states a part, or several.
    `parts`: the fields of the latter. Without any of its fields it is shown only where `STATED`.
    """

    name: str
    show: Show
    read: Read
    only: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()
    field: str = ""
    parts: tuple[str, ...] = ()

    def may_show(self, opcode: str, fields: frozenset[str]) -> bool:
        """Whether an instruction that has these fields may state the attribute."""
        if (self.only and opcode not in self.only) or opcode in self.never:
            return False
        return not fields.isdisjoint((self.field, *self.parts)) or self.name in STATED.get(
            opcode, ()
        )


STATED: dict[str, frozenset[str]] = {
    opcode: frozenset(names.split())
    for opcode, names in {
        "broadcast": "dimensions",
        "transpose": "dimensions",
        "reverse": "dimensions",
        "reduce": "dimensions",
        "map": "dimensions",
        "sort": "dimensions",
        "concatenate": "dimensions",
        "iota": "iota_dimension",
        "get-tuple-element": "index",
        "slice": "slice",
        "dynamic-slice": "dynamic_slice_sizes",
        "dot": "lhs_contracting_dims rhs_contracting_dims",
        "gather": "offset_dims collapsed_slice_dims start_index_map index_vector_dim slice_sizes",
        "scatter": "update_window_dims inserted_window_dims scatter_dims_to_operand_dims "
        "index_vector_dim",
        "rng-bit-generator": "algorithm",
        "fft": "fft_type fft_length",
        "topk": "k largest",
        "batch-norm-training": "epsilon feature_index",
        "batch-norm-inference": "epsilon feature_index",
        "batch-norm-grad": "epsilon feature_index",
        "reduce-precision": "exponent_bits mantissa_bits",
        "rng-get-and-update-state": "delta",
        "all-reduce": "replica_groups",
        "all-gather": "replica_groups",
        "all-to-all": "replica_groups",
        "reduce-scatter": "replica_groups",
        "collective-permute": "source_target_pairs",
        "scan": "dimensions",
    }.items()
}
"""Attributes that an opcode shows even where they are empty or zero."""


def row_attribute(
    name: str,
    field: str,
    show: Callable[[Any], str | None],
    read: Callable[[str], Any],
    empty: Any = None,
    only: str = "",
    never: str = "",
) -> TextAttribute:
    """An attribute that is one field. `empty`: the value that is shown only where `STATED`."""

    def show_field(instruction: Instruction) -> str | None:
        value = instruction.attributes.get(field)
        if value is None or value == empty:
            if name not in STATED.get(instruction.opcode, ()):
                return None
            value = empty if value is None else value
            if value is None:
                return None
        return show(value)

    def read_field(text: str, attributes: dict[str, Any]) -> None:
        value = read(text)
        # Text states what a proto leaves out: zero, false, an empty list.
        if value != empty or isinstance(value, Record):
            attributes[field] = value

    return TextAttribute(
        name, show_field, read_field, frozenset(only.split()), frozenset(never.split()), field
    )


def numbers_attribute(name: str, field: str = "", **options: Any) -> TextAttribute:
    return row_attribute(name, field or name, joined, integers, (), **options)


def number_attribute(name: str, field: str = "", **options: Any) -> TextAttribute:
    return row_attribute(name, field or name, str, integer, 0, **options)


def flag_attribute(name: str, field: str = "", **options: Any) -> TextAttribute:
    return row_attribute(name, field or name, shown_flag, boolean, False, **options)


def shown_flag(value: bool) -> str:
    return "true" if value else "false"


def word_attribute(name: str, field: str, **options: Any) -> TextAttribute:
    return row_attribute(name, field, str, _bare, "", **options)


def _bare(text: str) -> str:
    if not re.fullmatch(r"\w+", text):
        raise ValueError(f"word expected, found {text[:40]!r}")
    return text


def quoted_attribute(name: str, field: str = "", **options: Any) -> TextAttribute:
    return row_attribute(name, field or name, quote, string, "", **options)


def enumeration_attribute(
    name: str, field: str, kind: str, lower: bool = False, empty: str = "", **options: Any
) -> TextAttribute:
    """An enumeration, whose text may be the proto's name in lower case."""
    shown = {value: value.lower() if lower else value for value in ENUMERATIONS[kind]}
    values = {text: value for value, text in shown.items()}

    def read(text: str) -> str:
        if text not in values:
            raise ValueError(f"one of {', '.join(values)} expected, found {text[:40]!r}")
        return values[text]

    return row_attribute(name, field, shown.get, read, empty or ENUMERATIONS[kind][0], **options)


def part_attribute(name: str, field: str, kind: str, part: str, **options: Any) -> TextAttribute:
    """A repeated number or a number that is a field of a message, which is a field."""
    repeated = fields_of(kind)[part].repeated
    empty: Any = () if repeated else fields_of(kind)[part].default
    enumeration = fields_of(kind)[part].type
    if enumeration in ENUMERATIONS:
        return _enumerated_part(name, field, kind, part)
    show: Callable[[Any], str] = joined if repeated else str
    read: Callable[[str], Any] = integers if repeated else integer
    if empty is False:
        show, read = shown_flag, boolean

    def show_part(instruction: Instruction) -> str | None:
        record = instruction.attributes.get(field)
        if record is None or record.message != kind:
            return None
        value = getattr(record, part)
        if value == empty and name not in STATED.get(instruction.opcode, ()):
            return None
        return show(value)

    def read_part(text: str, attributes: dict[str, Any]) -> None:
        record = attributes.setdefault(field, Record(kind))
        value = read(text)
        if value != empty:
            record.values[part] = value

    return TextAttribute(
        name,
        show_part,
        read_part,
        frozenset(options.get("only", "").split()),
        frozenset(options.get("never", "").split()),
        parts=(field,),
    )


def _enumerated_part(name: str, field: str, kind: str, part: str) -> TextAttribute:
    values = ENUMERATIONS[fields_of(kind)[part].type]

    def show_part(instruction: Instruction) -> str | None:
        record = instruction.attributes.get(field)
        return None if record is None or part not in record.values else str(record.values[part])

    def read_part(text: str, attributes: dict[str, Any]) -> None:
        if text not in values:
            raise ValueError(f"one of {', '.join(values)} expected, found {text[:40]!r}")
        attributes.setdefault(field, Record(kind)).values[part] = text

    return TextAttribute(name, show_part, read_part, parts=(field,))
