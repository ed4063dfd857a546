"""Message classes of the protobuf library, built from the field table.

The classes read and write the wire format of `graph_compiler.hlo.proto_fields`. They differ from
what the public schema would generate in three ways that the wire cannot show. Every field has
presence, so that what a file states explicitly is kept. Enumerations are plain numbers, so that
unknown values are kept. Packed fixed-width elements are one `bytes` (`raw` in the table).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from graph_compiler.hlo.proto_fields import ENUMERATIONS, MESSAGES

_PACKAGE = "opennki.hlo"


def entry_name(map_type: str) -> str:
    """Name of the message that holds one entry of a map field."""
    return "StringEntry" if map_type == "map" else map_type[4:-1] + "Entry"


def _declare(message: Any, number: int, name: str, kind: str, repeated: bool) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Descriptor

    scalars = {
        "int64": Descriptor.TYPE_INT64,
        "int32": Descriptor.TYPE_INT32,
        "uint64": Descriptor.TYPE_UINT64,
        "uint32": Descriptor.TYPE_UINT32,
        "bool": Descriptor.TYPE_BOOL,
        "float": Descriptor.TYPE_FLOAT,
        "double": Descriptor.TYPE_DOUBLE,
        "string": Descriptor.TYPE_STRING,
        "bytes": Descriptor.TYPE_BYTES,
        "raw": Descriptor.TYPE_BYTES,
    }
    if kind.startswith("map"):
        kind, repeated = entry_name(kind), True
    field = message.field.add(name=name, number=number)
    field.label = Descriptor.LABEL_REPEATED if repeated else Descriptor.LABEL_OPTIONAL
    if kind in ENUMERATIONS:
        kind = "int32"
    if kind in scalars:
        field.type = scalars[kind]
        if repeated and kind not in ("string", "bytes", "raw"):
            field.options.packed = True
    else:
        field.type = Descriptor.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{kind}"


@cache
def _pool() -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    file = FileDescriptorProto(name="opennki/hlo.proto", package=_PACKAGE, syntax="proto2")
    entries: dict[str, str] = {}
    for kind, fields in MESSAGES.items():
        message = file.message_type.add(name=kind)
        for row in fields:
            _declare(message, row.number, row.name, row.type, row.repeated)
            if row.type.startswith("map"):
                entries[entry_name(row.type)] = row.type
    for name, map_type in entries.items():
        entry = file.message_type.add(name=name)
        if map_type == "map":
            _declare(entry, 1, "key", "string", False)
            _declare(entry, 2, "value", "string", False)
        else:
            _declare(entry, 1, "key", "int64", False)
            _declare(entry, 2, "value", map_type[4:-1], False)
    # The outer messages (HloProto, HloSnapshot) hold the next one as their first field.
    _declare(file.message_type.add(name="Wrapper"), 1, "inner", "bytes", False)
    pool = DescriptorPool()
    pool.Add(file)
    return pool


@cache
def message_class(kind: str) -> Any:
    """The class of a message of the field table, by the message's name."""
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{kind}"))


def unknown_bytes(message: Any) -> bytes:
    """The fields of a message that the table does not list, as they stood on the wire."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    if not len(UnknownFieldSet(message)):
        return b""
    rest = type(message)()
    rest.CopyFrom(message)
    for field, _ in message.ListFields():
        rest.ClearField(field.name)
    return rest.SerializeToString()


def enumeration_name(enumeration: str, number: int) -> str | int:
    """The name of a value; the number itself where the table does not know it."""
    values = ENUMERATIONS[enumeration]
    return values[number] if 0 <= number < len(values) else number


@cache
def _numbers(enumeration: str) -> dict[str, int]:
    return {name: number for number, name in enumerate(ENUMERATIONS[enumeration])}


def enumeration_number(enumeration: str, value: str | int) -> int:
    """The number of a value that is given by name or number. Raises KeyError."""
    return value if isinstance(value, int) else _numbers(enumeration)[value]
