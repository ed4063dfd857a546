"""Shapes and records out of proto messages, and back into them."""

from __future__ import annotations

from typing import Any

from graph_compiler.hlo.proto_fields import ENUMERATIONS, MESSAGES
from graph_compiler.hlo.proto_messages import (
    enumeration_name,
    enumeration_number,
    message_class,
    unknown_bytes,
)
from graph_compiler.hlo.record import Record, fields_of
from graph_compiler.hlo.types import PRIMITIVE_BY_NUMBER, PRIMITIVE_TYPES, Shape
from isa.errors import NeuronError


class Deviation(Exception):
    """A file does not follow a convention (`graph_compiler.hlo.graph.CONVENTIONS`)."""

    def __init__(self, convention: str) -> None:
        super().__init__(convention)
        self.convention = convention


def text(value: Any) -> str:
    """A string of a message; the library gives bytes where it is not UTF-8, which is an error."""
    if isinstance(value, bytes):
        raise NeuronError("hlo-invalid", f"The string {value[:40]!r} is not UTF-8.")
    return str(value)


class ValueReader:
    """Reads values under the conventions that the file is assumed to follow.

    Raises `Deviation` at the first value that follows one of them not.
    """

    def __init__(self, conventions: frozenset[str]) -> None:
        self.dynamic = "is_dynamic_dimension" in conventions
        self.padding = "tail_padding" in conventions
        self.layout = "layout" in conventions
        # Most shapes and metadata of a graph occur many times.
        self._shapes: dict[bytes, Shape] = {}

    def shape(self, message: Any) -> Shape:
        """The shape that a ShapeProto states. Raises NeuronError hlo-invalid."""
        key = message.SerializeToString()
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self._shape(message)
        return shape

    def _shape(self, message: Any) -> Shape:
        primitive = PRIMITIVE_BY_NUMBER.get(message.element_type)
        if primitive is None:
            raise NeuronError(
                "hlo-invalid", f"A shape has the unknown element type {message.element_type}."
            )
        dimensions = tuple(message.dimensions)
        dynamic = tuple(message.is_dynamic_dimension)
        if dynamic and len(dynamic) != len(dimensions):
            raise NeuronError(
                "hlo-invalid",
                f"A shape has {len(dimensions)} dimensions and {len(dynamic)} dynamic flags.",
            )
        if self.dynamic and dimensions:
            if not dynamic:
                raise Deviation("is_dynamic_dimension")
            if not any(dynamic):
                dynamic = ()
        layout, details = None, None
        if message.HasField("layout"):
            layout = tuple(message.layout.minor_to_major)
            details = self._layout_details(message.layout)
            if layout and sorted(layout) != list(range(len(dimensions))):
                raise NeuronError(
                    "hlo-invalid",
                    f"The layout {layout} of a shape of {len(dimensions)} dimensions is no "
                    "permutation of them.",
                )
            if self.layout and not dimensions:
                layout = None
        elif self.layout and primitive.is_array:
            raise Deviation("layout")
        return Shape(
            primitive.name,
            dimensions,
            tuple(self.shape(inner) for inner in message.tuple_shapes),
            layout,
            dynamic,
            details,
            unknown_bytes(message),
        )

    def _layout_details(self, message: Any) -> Record | None:
        details = self.record("LayoutProto", message)
        details.values.pop("minor_to_major", None)
        if self.padding:
            if details.values.get("tail_padding_alignment_in_elements") != 1:
                raise Deviation("tail_padding")
            del details.values["tail_padding_alignment_in_elements"]
        return details if details.values or details.unknown else None

    def record(self, kind: str, message: Any) -> Record:
        """The fields that a message states."""
        record = Record(kind, unknown_bytes(message))
        fields = fields_of(kind)
        for descriptor, value in message.ListFields():
            name = descriptor.name
            field = fields[name]
            record.values[name] = self.value(field.type, field.repeated, value)
        return record

    def value(self, kind: str, repeated: bool, value: Any) -> Any:
        """A field's value as the graph holds it (see `graph_compiler.hlo.graph`)."""
        if kind.startswith("map"):
            if kind == "map":
                return {text(entry.key): text(entry.value) for entry in value}
            inner = kind[4:-1]
            return {entry.key: self.record(inner, entry.value) for entry in value}
        if repeated:
            if kind in MESSAGES or kind in ENUMERATIONS:
                return tuple(self.value(kind, False, item) for item in value)
            return tuple(map(text, value)) if kind == "string" else tuple(value)
        if kind == "ShapeProto":
            return self.shape(value)
        if kind in MESSAGES:
            return self.record(kind, value)
        if kind in ENUMERATIONS:
            return enumeration_name(kind, value)
        return text(value) if kind == "string" else value


class ValueWriter:
    """Writes values as a file that follows the given conventions states them."""

    def __init__(self, conventions: frozenset[str]) -> None:
        self.dynamic = "is_dynamic_dimension" in conventions
        self.padding = "tail_padding" in conventions
        self.layout = "layout" in conventions
        self._shapes: dict[Shape, Any] = {}

    def shape(self, shape: Shape, message: Any) -> None:
        """Fill in a ShapeProto."""
        written = self._shapes.get(shape)
        if written is None:
            written = self._shapes[shape] = message_class("ShapeProto")()
            self._fill_shape(shape, written)
        message.CopyFrom(written)

    def _fill_shape(self, shape: Shape, message: Any) -> None:
        message.element_type = PRIMITIVE_TYPES[shape.element_type].number
        message.dimensions.extend(shape.dimensions)
        dynamic = shape.dynamic_dimensions
        if self.dynamic and not dynamic:
            dynamic = (False,) * shape.rank
        message.is_dynamic_dimension.extend(dynamic)
        for inner in shape.tuple_shapes:
            self.shape(inner, message.tuple_shapes.add())
        layout = shape.layout
        if layout is None and self.layout and shape.is_array:
            layout = tuple(reversed(range(shape.rank)))
        if layout is not None or shape.layout_details is not None:
            message.layout.SetInParent()
            message.layout.minor_to_major.extend(layout or ())
            if self.padding:
                message.layout.tail_padding_alignment_in_elements = 1
            if shape.layout_details is not None:
                self.record(shape.layout_details, message.layout)
        if shape.unknown:
            message.MergeFromString(shape.unknown)

    def record(self, record: Record, message: Any) -> None:
        """Fill in a message from a record of its kind."""
        message.SetInParent()
        fields = fields_of(record.message)
        for name, value in record.values.items():
            field = fields[name]
            self.value(field.type, field.repeated, name, value, message)
        if record.unknown:
            message.MergeFromString(record.unknown)

    def value(self, kind: str, repeated: bool, name: str, value: Any, message: Any) -> None:
        """Set a field of a message."""
        if kind.startswith("map"):
            for key, item in value.items():
                entry = getattr(message, name).add(key=key)
                if kind == "map":
                    entry.value = item
                else:
                    self.record(item, entry.value)
        elif kind in MESSAGES:
            field = getattr(message, name)
            for item in value if repeated else (value,):
                target = field.add() if repeated else field
                if kind == "ShapeProto":
                    self.shape(item, target)
                else:
                    self.record(item, target)
        elif repeated:
            numbers = value
            if kind in ENUMERATIONS:
                numbers = [enumeration_number(kind, item) for item in value]
            getattr(message, name).extend(numbers)
        else:
            if kind in ENUMERATIONS:
                value = enumeration_number(kind, value)
            setattr(message, name, value)
