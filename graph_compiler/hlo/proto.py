"""HloModuleProto: bytes to a module and back, nothing lost.

A file may hold a HloModuleProto or one inside a HloProto or HloSnapshot. What it states is kept,
whether the field table knows it or not; `to_proto(from_proto(data))` states the same.
"""

from __future__ import annotations

from typing import Any

from graph_compiler.hlo.arguments import bytes_argument, module_argument
from graph_compiler.hlo.graph import CONVENTIONS, Computation, Instruction, Module
from graph_compiler.hlo.literal import fill_literal, literal_array
from graph_compiler.hlo.order import operands_first
from graph_compiler.hlo.proto_messages import message_class, unknown_bytes
from graph_compiler.hlo.proto_values import Deviation, ValueReader, ValueWriter, text
from graph_compiler.hlo.record import fields_of
from graph_compiler.hlo.types import Shape
from isa.errors import NeuronError
from nki.errors import named_arguments

MAX_BYTES = 1 << 31
"""Bytes that a proto may have at most, by the format's own rule."""

MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What attributes cause that are incomplete, of other types, or out of range."""

_HOST_SHAPE = "host_program_shape"
"""The field with the shapes of the entry computation, which XLA takes no module without."""

_SLOTS = frozenset(
    {"name", "opcode", "shape", "metadata", "literal", "parameter_number", "id"}
    | {"operand_ids", "control_predecessor_ids", "called_computation_ids"}
)
"""Fields of an instruction that have a slot of their own in the graph."""


def is_truncated(data: bytes) -> bool:
    """Whether the last top-level field of a message states more bytes than follow."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        wire = tag & 7
        if wire == 0:
            _, position = _varint(data, position)
        elif wire == 1:
            position += 8
        elif wire == 2:
            length, position = _varint(data, position)
            position += length
        elif wire == 5:
            position += 4
        else:
            return False
    return position > end


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """The number at a position and the position behind it, beyond the end if it is cut off."""
    value, shift = 0, 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    return value, len(data) + 1


def _parse(kind: str, data: bytes) -> Any | None:
    from google.protobuf.message import DecodeError

    message = message_class(kind)()
    try:
        message.ParseFromString(data)
    except DecodeError:
        return None
    return message


def _looks_like_module(message: Any) -> bool:
    return bool(message.computations) and all(
        computation.name and computation.instructions for computation in message.computations[:4]
    )


def find_module(data: bytes) -> tuple[Any, tuple[bytes, ...]] | None:
    """The HloModuleProto in a file and what surrounds it, outermost first; None if there is none.

    What surrounds it is, for each message around it, that message's other fields as bytes.
    """
    wrappers: tuple[bytes, ...] = ()
    while len(wrappers) <= 2:
        message = _parse("HloModuleProto", data)
        if message is not None and _looks_like_module(message):
            return message, wrappers
        outer = _parse("Wrapper", data)
        if outer is None or not outer.inner:
            return None
        data = outer.inner
        wrappers = (*wrappers, unknown_bytes(outer))
    return None


@named_arguments
def from_proto(data: bytes) -> Module:
    """The module in the bytes of a HloModuleProto, HloProto or HloSnapshot.

    Raises NeuronError hlo-truncated, hlo-invalid, hlo-cycle, hlo-too-large or argument-kind.

    Source: https://github.com/openxla/xla/blob/main/xla/service/hlo.proto

    >>> from graph_compiler import parse_text
    >>> data = to_proto(parse_text("HloModule m\\nENTRY e { ROOT x = f32[2] parameter(0) }"))
    >>> from_proto(data).entry.root
    <x = f32[2]{0} parameter()>
    """
    data = bytes_argument(data, "from_proto")
    if len(data) >= MAX_BYTES:
        raise NeuronError("hlo-too-large", f"The file has {len(data)} bytes.")
    found = find_module(data)
    if found is None:
        if not data or is_truncated(data):
            raise NeuronError(
                "hlo-truncated", f"The proto ends within a field, after {len(data)} bytes."
            )
        raise NeuronError("hlo-invalid", "The bytes hold no HloModuleProto with computations.")
    message, wrappers = found
    conventions = CONVENTIONS
    while True:
        try:
            module = _ModuleReader(conventions).module(message)
        except Deviation as deviation:
            conventions -= {deviation.convention}
        else:
            module.wrappers = wrappers
            return module


class _ModuleReader:
    """Builds the graph of one HloModuleProto under assumed conventions."""

    def __init__(self, conventions: frozenset[str]) -> None:
        self.conventions = conventions
        self.values = ValueReader(conventions)
        self.empty = tuple(
            name
            for name in ("frontend_attributes", "statistics_viz", "metadata")
            if name in conventions
        )

    def module(self, message: Any) -> Module:
        if _HOST_SHAPE in self.conventions and not message.HasField(_HOST_SHAPE):
            raise Deviation(_HOST_SHAPE)
        computations = [self.computation(inner) for inner in message.computations]
        by_id = {computation.id: computation for computation in computations}
        if len(by_id) != len(computations):
            raise NeuronError("hlo-invalid", "Two computations have the same id.")
        for computation, stated in zip(computations, message.computations):
            for instruction, inner in zip(computation.instructions, stated.instructions):
                for number in inner.called_computation_ids:
                    if number not in by_id:
                        raise _dangling(instruction, "calls the computation", number)
                    instruction.called.append(by_id[number])
        for computation in computations:
            computation.instructions = operands_first(computation)
        attributes = self._rest(
            "HloModuleProto",
            message,
            {"name", "entry_computation_name", "computations", "id", "entry_computation_id"},
        )
        return Module(
            text(message.name),
            computations,
            self._entry(message, by_id),
            message.id,
            attributes,
            unknown_bytes(message),
            conventions=self.conventions,
        )

    def _entry(self, message: Any, by_id: dict[int, Computation]) -> Computation:
        entry = by_id.get(message.entry_computation_id)
        if entry is None:
            raise NeuronError(
                "hlo-invalid",
                f"The entry computation {message.entry_computation_id} "
                f"({message.entry_computation_name!r}) is not among the computations.",
            )
        return entry

    def _rest(self, kind: str, message: Any, slots: Any) -> dict[str, Any]:
        fields = fields_of(kind)
        return {
            descriptor.name: self.values.value(
                fields[descriptor.name].type, fields[descriptor.name].repeated, value
            )
            for descriptor, value in message.ListFields()
            if descriptor.name not in slots
        }

    def computation(self, message: Any) -> Computation:
        if not message.instructions:
            raise NeuronError("hlo-invalid", f"The computation {message.name!r} is empty.")
        instructions = [self.instruction(inner) for inner in message.instructions]
        by_id = {instruction.id: instruction for instruction in instructions}
        if len(by_id) != len(instructions):
            raise NeuronError(
                "hlo-invalid", f"Two instructions of {message.name!r} have the same id."
            )
        for instruction, inner in zip(instructions, message.instructions):
            for number in inner.operand_ids:
                if number not in by_id:
                    raise _dangling(instruction, "has the operand", number)
                instruction.operands.append(by_id[number])
            for number in inner.control_predecessor_ids:
                if number not in by_id:
                    raise _dangling(instruction, "waits for the instruction", number)
                instruction.control_predecessors.append(by_id[number])
        root = by_id.get(message.root_id)
        if root is None:
            raise NeuronError(
                "hlo-invalid",
                f"The root {message.root_id} of the computation {message.name!r} is not in it.",
            )
        computation = Computation(
            text(message.name),
            instructions,
            root,
            message.id,
            self._rest("HloComputationProto", message, {"name", "instructions", "id", "root_id"}),
            unknown_bytes(message),
        )
        if computation.attributes.get("program_shape") == computation.program_shape():
            del computation.attributes["program_shape"]
        return computation

    def instruction(self, message: Any) -> Instruction:
        attributes = self._rest("HloInstructionProto", message, _SLOTS)
        shape = self.values.shape(message.shape)
        metadata = None
        if message.HasField("metadata"):
            metadata = self.values.record("OpMetadata", message.metadata)
        for name in self.empty:
            if name == "metadata":
                if metadata is None:
                    raise Deviation(name)
                if metadata.is_empty:
                    metadata = None
            elif name not in attributes:
                raise Deviation(name)
            elif attributes[name].is_empty:
                del attributes[name]
        if message.HasField("literal"):
            literal = message.literal
            stated = self.values.shape(literal.shape)
            if not stated.same_as(shape):
                raise NeuronError(
                    "hlo-shape-mismatch",
                    f"The instruction {message.name!r} has the shape {shape}, its literal "
                    f"{stated}.",
                )
            attributes["literal"] = literal_array(literal, stated, repr(message.name))
            if stated != shape:
                attributes["literal_shape"] = stated
            if unknown := unknown_bytes(literal):
                attributes["literal_unknown"] = unknown
        return Instruction(
            text(message.opcode),
            shape,
            name=text(message.name),
            attributes=attributes,
            metadata=metadata,
            parameter_number=message.parameter_number,
            id=message.id,
            unknown=unknown_bytes(message),
        )


def encode_fields(
    kind: str, values: dict[str, Any], unknown: bytes, conventions: frozenset[str]
) -> bytes:
    """Some fields of a message as bytes; a literal is given as (elements, shape, unknown)."""
    message = message_class(kind)()
    writer = ValueWriter(conventions)
    values = dict(values)
    literal = values.pop("literal", None)
    if literal is not None:
        elements, shape, rest = literal
        _write_literal(message, elements, shape, rest, writer)
    _write_rest(kind, values, message, writer)
    return message.SerializeToString() + unknown


def decode_fields(
    kind: str, data: bytes, conventions: frozenset[str]
) -> tuple[dict[str, Any], bytes]:
    """What `encode_fields` was given. Raises ValueError."""
    message = _parse(kind, data)
    if message is None:
        raise ValueError("not the fields of a message")
    reader = ValueReader(conventions)
    fields = fields_of(kind)
    values: dict[str, Any] = {}
    try:
        for descriptor, value in message.ListFields():
            name = descriptor.name
            if fields[name].type == "LiteralProto":
                shape = reader.shape(value.shape)
                values[name] = (literal_array(value, shape, "it"), shape, unknown_bytes(value))
            else:
                values[name] = reader.value(fields[name].type, fields[name].repeated, value)
    except Deviation as deviation:
        raise ValueError(f"fields that do not follow the convention {deviation}") from None
    return values, unknown_bytes(message)


def _dangling(instruction: Instruction, relation: str, number: int) -> NeuronError:
    return NeuronError(
        "hlo-invalid",
        f"The instruction {instruction.name!r} {relation} {number}, which does not exist in its "
        "place.",
    )


def to_message(module: Module) -> Any:
    """The HloModuleProto of a module, as a message of the protobuf library."""
    message = message_class("HloModuleProto")()
    values = ValueWriter(module.conventions)
    message.name = module.name
    message.entry_computation_name = module.entry.name
    message.entry_computation_id = module.entry.id
    if module.id:
        message.id = module.id
    _write_rest("HloModuleProto", module.attributes, message, values)
    if _HOST_SHAPE in module.conventions and _HOST_SHAPE not in module.attributes:
        values.record(module.entry.program_shape(), message.host_program_shape)
    for computation in module.computations:
        _write_computation(computation, message.computations.add(), values, module.conventions)
    if module.unknown:
        message.MergeFromString(module.unknown)
    return message


@named_arguments
def to_proto(module: Module) -> bytes:
    """The bytes of the module's proto, in the outer message that it was read from, if any.

    A module whose instructions have no ids is numbered first. Raises NeuronError hlo-invalid for
    attributes that are no fields, and literals that do not fit.

    Source: https://github.com/openxla/xla/blob/main/xla/service/hlo.proto

    >>> from graph_compiler import parse_text
    >>> to_proto(parse_text("HloModule m\\nENTRY e { ROOT x = f32[2] parameter(0) }"))[:5]
    b'\\n\\x01m\\x12\\x01'
    """
    module_argument(module, "to_proto")
    if not module.entry.root.id:
        module.renumber()
    try:
        data = to_message(module).SerializeToString()
    except MALFORMED as error:
        raise NeuronError(
            "hlo-invalid", f"The module {module.name!r} cannot be written: {error}"
        ) from None
    for rest in reversed(module.wrappers):
        outer = message_class("Wrapper")(inner=data)
        data = outer.SerializeToString() + rest
    return data


def _write_rest(kind: str, attributes: dict[str, Any], message: Any, values: ValueWriter) -> None:
    fields = fields_of(kind)
    for name, value in attributes.items():
        field = fields.get(name)
        if field is None:
            raise NeuronError("hlo-invalid", f"{name!r} is no field of {kind}.")
        try:
            values.value(field.type, field.repeated, name, value, message)
        except (ValueError, TypeError, LookupError) as error:
            raise NeuronError(
                "hlo-invalid", f"{name!r} of {kind} cannot be {value!r:.60}: {error}"
            ) from None


def _write_computation(
    computation: Computation, message: Any, values: ValueWriter, conventions: frozenset[str]
) -> None:
    message.name = computation.name
    if computation.id:
        message.id = computation.id
    message.root_id = computation.root.id
    for instruction in computation.instructions:
        try:
            _write_instruction(instruction, message.instructions.add(), values, conventions)
        except MALFORMED as error:
            raise NeuronError(
                "hlo-invalid", f"{instruction!r:.80} cannot be written: {error}"
            ) from None
    _write_rest("HloComputationProto", computation.attributes, message, values)
    if "program_shape" not in computation.attributes:
        values.record(computation.program_shape(), message.program_shape)
    if computation.unknown:
        message.MergeFromString(computation.unknown)


def _write_instruction(
    instruction: Instruction, message: Any, values: ValueWriter, conventions: frozenset[str]
) -> None:
    message.name = instruction.name
    message.opcode = instruction.opcode
    message.id = instruction.id
    values.shape(instruction.shape, message.shape)
    if instruction.parameter_number:
        message.parameter_number = instruction.parameter_number
    if instruction.metadata is not None:
        values.record(instruction.metadata, message.metadata)
    for name in ("frontend_attributes", "statistics_viz", "metadata"):
        if name in conventions:
            getattr(message, name).SetInParent()
    message.operand_ids.extend([operand.id for operand in instruction.operands])
    message.control_predecessor_ids.extend([item.id for item in instruction.control_predecessors])
    message.called_computation_ids.extend([computation.id for computation in instruction.called])
    attributes = instruction.attributes
    if "literal" in attributes:
        attributes = dict(attributes)
        shape = attributes.pop("literal_shape", instruction.shape)
        unknown = attributes.pop("literal_unknown", b"")
        _write_literal(message, attributes.pop("literal"), shape, unknown, values)
    _write_rest("HloInstructionProto", attributes, message, values)
    if instruction.unknown:
        message.MergeFromString(instruction.unknown)


def _write_literal(
    message: Any, value: Any, shape: Shape, unknown: bytes, values: ValueWriter
) -> None:
    values.shape(shape, message.literal.shape)
    try:
        fill_literal(message.literal, value, shape)
    except (ValueError, TypeError, LookupError, OverflowError) as error:
        raise NeuronError(
            "hlo-invalid", f"The literal of {message.name!r} cannot be {shape}: {error}"
        ) from None
    if unknown:
        message.literal.MergeFromString(unknown)
