"""HLO protos: what a file states is what the graph holds and what is written again."""

from __future__ import annotations

import json
import mmap
import random
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_compiler import from_proto, to_proto
from graph_compiler.hlo import Computation, Instruction, Module, Record, Shape
from graph_compiler.hlo.proto import is_truncated
from graph_compiler.hlo.proto_fields import ENUMERATIONS, MESSAGES
from isa.errors import NeuronError

MODELS = Path(__file__).resolve().parents[3] / "shared" / "conformance" / "models"

needs_models = pytest.mark.skipif(not MODELS.exists(), reason=f"no model files in {MODELS}")


# A wire format writer of a few lines, so that files do not come from the code under test.


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def packed(number: int, *values: int) -> bytes:
    return field(number, b"".join(map(varint, values)))


def shape_bytes(element_type: int, *dimensions: int, layout: bytes | None = None) -> bytes:
    data = field(2, element_type)
    if dimensions:
        data += packed(3, *dimensions)
    return data + (field(5, layout) if layout is not None else b"")


def instruction_bytes(
    name: str, opcode: str, shape: bytes, number: int, rest: bytes = b""
) -> bytes:
    return field(1, name) + field(2, opcode) + field(3, shape) + rest + field(35, number)


def module_bytes(*instructions: bytes, root: int, rest: bytes = b"") -> bytes:
    computation = field(1, "main")
    computation += b"".join(field(2, instruction) for instruction in instructions)
    computation += field(5, 7) + field(6, root)
    return field(1, "m") + field(2, "main") + field(3, computation) + rest + field(6, 7)


def constant_bytes(literal: bytes, shape: bytes, rest: bytes = b"") -> bytes:
    whole = field(8, field(1, shape) + literal)
    return module_bytes(instruction_bytes("c", "constant", shape, 1, whole + rest), root=1)


def ordered(data: bytes) -> Any:
    """A message parsed by the protobuf library: equal where the same is stated."""
    from graph_compiler.hlo.proto_messages import message_class

    message = message_class("HloModuleProto")()
    message.ParseFromString(data)
    return message


@needs_models
def test_every_model_is_written_as_it_was_read() -> None:
    paths = sorted(MODELS.glob("*.hlo.pb"))
    assert len(paths) == 20
    for path in paths:
        data = path.read_bytes()
        assert to_proto(from_proto(data)) == data, path.name


@needs_models
@pytest.mark.parametrize("name", ["mamba_scan_infer_f32", "mnist_cnn_train_nnx"])
def test_a_model_holds_what_its_index_says(name: str) -> None:
    row = json.loads((MODELS / "index.json").read_text())[name]
    module = from_proto((MODELS / f"{name}.hlo.pb").read_bytes())
    assert Counter(item.opcode for item in module.instructions()) == row["hlo_ops"]
    assert len(module.computations) == row["n_computations"]
    shapes = [item.shape for item in module.parameters]
    assert [list(shape.dimensions) for shape in shapes] == [each["shape"] for each in row["inputs"]]
    types = [shape.numpy_dtype().name for shape in shapes]
    assert types == [each["dtype"] for each in row["inputs"]]


def test_a_file_made_by_hand_is_read() -> None:
    f32 = shape_bytes(11, 2, 3)
    data = module_bytes(
        instruction_bytes("x", "parameter", f32, 10),
        instruction_bytes("y", "parameter", f32, 11, field(9, 1)),
        instruction_bytes("z", "add", f32, 12, packed(36, 10, 11) + field(7, field(2, "f/add"))),
        root=12,
    )
    module = from_proto(data)
    x, y, z = module.entry.instructions
    assert (module.name, module.entry.name, module.entry.id) == ("m", "main", 7)
    assert module.entry.root is z and z.operands == [x, y] and z.opcode == "add"
    assert module.parameters == [x, y] and y.parameter_number == 1
    assert z.shape == Shape("f32", (2, 3)) and z.metadata.op_name == "f/add"
    written = ordered(to_proto(module))
    program = written.computations[0].program_shape  # The one thing that every file has.
    assert len(program.parameters) == 2 and list(program.parameter_names) == ["x", "y"]
    written.computations[0].ClearField("program_shape")
    assert written == ordered(data)


@pytest.mark.parametrize(
    ("element_type", "literal", "expected"),
    [
        (1, packed(2, 1, 0, 1), np.array([True, False, True])),
        (4, packed(4, 1, -2, 2**31 - 1), np.array([1, -2, 2**31 - 1], np.int32)),
        (5, packed(5, -1, 0, -(2**63)), np.array([-1, 0, -(2**63)], np.int64)),
        (9, packed(7, 2**64 - 1, 0, 1), np.array([2**64 - 1, 0, 1], np.uint64)),
        (2, field(15, b"\xff\x00\x80"), np.array([-1, 0, -128], np.int8)),
        (7, field(16, b"\x01\x02\xff\xff\x00\x00"), np.array([513, 65535, 0], np.uint16)),
        (10, field(11, b"\x00\x3c\x00\xc0\x01\x00"), np.array([1, -2, 2**-24], np.float16)),
        (
            11,
            field(8, struct.pack("<3f", 1.5, -0.0, float("inf"))),
            np.array([1.5, -0.0, np.inf], np.float32),
        ),
        (
            15,
            field(12, struct.pack("<6f", 1, 2, 3, 4, 5, 6)),
            np.array([1 + 2j, 3 + 4j, 5 + 6j], np.complex64),
        ),
    ],
)
def test_elements_of_constants(element_type: int, literal: bytes, expected: Any) -> None:
    data = constant_bytes(literal, shape_bytes(element_type, 3))
    found = from_proto(data).entry.root.attributes["literal"]
    assert found.dtype == expected.dtype and found.tobytes() == expected.tobytes()
    assert (
        ordered(to_proto(from_proto(data))).computations[0].instructions[0]
        == (ordered(data).computations[0].instructions[0])
    )


def test_four_bit_integers_stand_in_the_low_bits_of_bytes() -> None:
    # jax 0.10.2 writes int4 [1, 2, -3] as the bytes 01 02 0d.
    data = constant_bytes(field(21, b"\x01\x02\x0d"), shape_bytes(21, 3))
    found = from_proto(data).entry.root.attributes["literal"]
    assert found.astype(int).tolist() == [1, 2, -3]
    assert field(21, b"\x01\x02\x0d") in to_proto(from_proto(data))


def test_elements_stand_in_the_order_of_the_layout() -> None:
    columns = packed(1, 0, 1)
    elements = np.arange(6, dtype=np.float32)
    data = constant_bytes(field(8, elements.tobytes()), shape_bytes(11, 2, 3, layout=columns))
    found = from_proto(data).entry.root.attributes["literal"]
    assert np.array_equal(found, elements.reshape(3, 2).T)
    assert field(8, elements.tobytes()) in to_proto(from_proto(data))


def test_bits_of_a_nan_are_kept() -> None:
    signalling = struct.pack("<I", 0x7FA00001)
    data = constant_bytes(field(8, signalling), shape_bytes(11))
    assert from_proto(data).entry.root.attributes["literal"].tobytes() == signalling
    assert signalling in to_proto(from_proto(data))


def test_fields_that_the_table_does_not_know_survive() -> None:
    strange = field(3000, "from the future")
    shape = shape_bytes(11, 2, layout=packed(1, 0) + strange) + strange
    parameter = instruction_bytes(
        "x", "parameter", shape, 1, field(7, field(2, "op") + strange) + strange
    )
    data = module_bytes(parameter, root=1, rest=strange)
    module = from_proto(data)
    assert module.unknown == strange and module.entry.root.unknown == strange
    assert module.entry.root.shape.unknown == strange
    # Twice more in the program shape, which follows from the parameter and the root.
    assert to_proto(module).count(strange) == data.count(strange) + 4


def test_a_number_beyond_an_enumeration_is_kept() -> None:
    data = module_bytes(
        instruction_bytes("x", "rng-bit-generator", shape_bytes(8), 1, field(70, 99)), root=1
    )
    module = from_proto(data)
    assert module.entry.root.attributes["rng_algorithm"] == 99
    assert field(70, 99) in to_proto(module)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_module_is_found_within_other_messages(depth: int) -> None:
    data = module_bytes(instruction_bytes("x", "parameter", shape_bytes(11), 1), root=1)
    for level in range(depth):
        data = field(1, data) + field(4, f"platform {level}")
    module = from_proto(data)
    assert module.name == "m" and len(module.wrappers) == depth
    again = to_proto(module)
    assert all(f"platform {level}".encode() in again for level in range(depth))
    assert to_proto(from_proto(again)) == again


def refused(data: bytes) -> NeuronError:
    with pytest.raises(NeuronError) as caught:
        from_proto(data)
    return caught.value


def test_bad_references_are_named() -> None:
    f32 = shape_bytes(11)
    x = instruction_bytes("x", "parameter", f32, 1)
    neg = instruction_bytes("neg", "negate", f32, 2, packed(36, 9))
    assert "'neg' has the operand 9" in refused(module_bytes(x, neg, root=2)).what
    call = instruction_bytes("c", "call", f32, 2, packed(38, 8))
    assert "'c' calls the computation 8" in refused(module_bytes(x, call, root=2)).what
    assert "root 5" in refused(module_bytes(x, root=5)).what
    assert "same id" in refused(module_bytes(x, x, root=1)).what
    assert refused(module_bytes(x, root=1)[:-2] + field(6, 3)).code == "hlo-invalid"


def test_a_cycle_is_named() -> None:
    f32 = shape_bytes(11)
    a = instruction_bytes("a", "negate", f32, 1, packed(36, 2))
    b = instruction_bytes("b", "negate", f32, 2, packed(36, 1))
    error = refused(module_bytes(a, b, root=2))
    assert error.code == "hlo-cycle" and "'a'" in error.what


def test_instructions_out_of_order_are_put_into_order() -> None:
    f32 = shape_bytes(11)
    user = instruction_bytes("user", "negate", f32, 2, packed(36, 1))
    module = from_proto(module_bytes(user, instruction_bytes("x", "parameter", f32, 1), root=2))
    assert [item.name for item in module.entry.instructions] == ["x", "user"]


def test_literals_hold_exactly_their_elements() -> None:
    few = constant_bytes(field(8, struct.pack("<2f", 1, 2)), shape_bytes(11, 3))
    assert "holds 2 elements of f32" in refused(few).what
    absurd = constant_bytes(field(8, b"\0\0\0\0"), shape_bytes(11, 1 << 40, 1 << 40))
    assert refused(absurd).code == "hlo-invalid"


def test_shapes_are_checked_where_they_are_read() -> None:
    unknown = instruction_bytes("x", "parameter", shape_bytes(77), 1)
    assert "element type 77" in refused(module_bytes(unknown, root=1)).what
    twisted = shape_bytes(11, 2, 2, layout=packed(1, 1, 1))
    assert (
        "permutation"
        in refused(module_bytes(instruction_bytes("x", "parameter", twisted, 1), root=1)).what
    )


def test_truncation_is_told_from_nonsense() -> None:
    data = module_bytes(instruction_bytes("x", "parameter", shape_bytes(11), 1), root=1)
    for length in range(4, len(data) - 3):
        error = refused(data[:length])
        cut_inside = is_truncated(data[:length])
        assert error.code == ("hlo-truncated" if cut_inside else "hlo-invalid")
    assert refused(b"").code == "hlo-truncated"
    assert refused(b"\x07\x07").code == "hlo-invalid"


def test_strings_must_be_utf8() -> None:
    bad = field(1, b"\xff\xfe") + field(2, "parameter") + field(3, shape_bytes(11)) + field(35, 1)
    assert "UTF-8" in refused(module_bytes(bad, root=1)).what


def test_damaged_files_end_in_catalogue_errors() -> None:
    f32 = shape_bytes(11, 4, layout=packed(1, 0) + field(16, 1))
    whole = module_bytes(
        instruction_bytes("x", "parameter", f32, 1),
        instruction_bytes("c", "constant", f32, 2, field(8, field(1, f32) + field(8, b"\1" * 16))),
        instruction_bytes("y", "add", f32, 3, packed(36, 1, 2) + field(7, field(2, "jit(f)/add"))),
        root=3,
    )
    generator = random.Random(0)
    outcomes = set()
    for _ in range(1500):
        data = bytearray(whole)
        for _ in range(generator.choice((1, 2, 6))):
            data[generator.randrange(len(data))] = generator.randrange(256)
        del data[generator.randrange(len(data)) if generator.random() < 0.2 else len(data) :]
        try:
            module = from_proto(bytes(data))
        except NeuronError as error:
            outcomes.add(error.code)
        else:
            outcomes.add("read")
            assert to_proto(from_proto(to_proto(module))) == to_proto(module)
    assert {"read", "hlo-invalid", "hlo-truncated"} <= outcomes


def test_a_module_made_anew_is_numbered_and_written() -> None:
    x = Instruction("parameter", Shape("f32", (4,)))
    numbers = Record("DotDimensionNumbers", lhs_contracting_dimensions=(0,))
    y = Instruction("dot", Shape("f32"), [x, x], attributes={"dot_dimension_numbers": numbers})
    module = Module("made", [Computation("main", [x, y])])
    again = from_proto(to_proto(module))
    assert [item.opcode for item in again.entry.instructions] == ["parameter", "dot"]
    assert again.entry.root.attributes["dot_dimension_numbers"] == numbers
    assert again.entry.root.shape.same_as(Shape("f32"))
    wrong = Instruction("negate", Shape("f32"), [y], attributes={"no_such_field": 1})
    with pytest.raises(NeuronError, match="no_such_field"):
        to_proto(Module("made", [Computation("main", [x, y, wrong])]))
    wrong.attributes = {"exponent_bits": 1 << 40}
    with pytest.raises(NeuronError, match="exponent_bits"):
        to_proto(Module("made", [Computation("main", [x, y, wrong])]))


def _descriptors(library: Path) -> list[Any]:
    """The descriptors of XLA's protos within a library that has them linked in."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    found = []
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for name in (b"xla/service/hlo.proto", b"xla/xla_data.proto"):
            head = b"\n" + varint(len(name)) + name + b"\x12\x03xla"
            start = data.find(head)
            if start < 0:
                continue
            end = start
            while data[end] >> 3 in range(1, 15) and data[end] & 7 in (0, 2):
                length = position = 0
                while True:
                    byte = data[end + 1 + position]
                    length |= (byte & 127) << 7 * position
                    position += 1
                    if byte < 128:
                        break
                wire = data[end] & 7
                end += 1 + position + (length if wire == 2 else 0)
            descriptor = FileDescriptorProto()
            try:
                descriptor.ParseFromString(data[start:end])
            except DecodeError:
                continue
            found.append(descriptor)
    return found


def test_the_field_table_agrees_with_the_schema_in_jaxlib() -> None:
    jaxlib = pytest.importorskip("jaxlib", reason="jaxlib has the schema to compare with")
    libraries = sorted(Path(jaxlib.__file__).parent.glob("libjax_common*"))
    files = _descriptors(libraries[0]) if libraries else []
    if len(files) != 2:
        pytest.skip("the schema is not found in this jaxlib")
    checked = 0

    def compare(messages: Any) -> None:
        nonlocal checked
        for message in messages:
            rows = {row.number: row for row in MESSAGES.get(message.name, ())}
            for official in message.field:
                row = rows.get(official.number)
                if row is None:
                    continue
                assert row.name == official.name, (message.name, official.number)
                if row.type != "raw" and not row.type.startswith("map"):
                    assert row.repeated == (official.label == 3), (message.name, row.name)
                checked += 1
            compare(message.nested_type)

    for file in files:
        compare(file.message_type)
        for enumeration in file.enum_type:
            ours = ENUMERATIONS.get(enumeration.name)
            if ours:
                numbers = {value.number: value.name for value in enumeration.value}
                assert all(numbers[place] == name for place, name in enumerate(ours))
    assert checked > 200
