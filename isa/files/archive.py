"""A program as named files, and the deterministic tar archive that holds them.

Names are the documented ones of the vendor's archive where there is one (`info.json`,
`kernel_debug_info.json`, `sgNN/def.json` with `dma_queue`, `Activation.json`, `DVE.json`); contents
are ours.

    info.json                  format, target, name, metadata of the writer
    graph.json                 tensors, parameters, results, launch symbols, guards
    kernel_debug_info.json     source map: what an instruction's source location stands for
    constants/NNNN.bin         bytes of a constant tensor
    sgNN/def.json              core NN: engines, DMA queues, on-chip allocations
    sgNN/<ENGINE>.json         one stream: how often its templates come, and where (`reroll`)
    sgNN/<ENGINE>.bin          the instruction slots of its templates (`encoding`)
    sgNN/<ENGINE>.operands.bin their operand table (`operand_table`)

What an unrolled loop repeats is written once: streams re-rolled, and allocations as rows of their
numbered names and offsets (`isa.columns.rolled.RolledRows`). JSON is written with sorted keys and
without spaces; no file depends on time, user or machine.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Collection, Mapping, MutableSequence, Sequence
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Any

from isa.dtypes import DTYPES
from isa.enums import Engine, Memory
from isa.errors import NeuronError
from isa.files.encoding import (
    AMOUNT_LIMIT,
    MALFORMED,
    SEMAPHORES,
    EncodedStream,
    Symbols,
    decode_stream,
    encode_stream,
    table_digest,
)
from isa.files.operand_table import Relocation
from isa.program import (
    ROLES,
    CoreProgram,
    Guard,
    OnChipAllocation,
    Program,
    Queue,
    SourceLocation,
    TensorDeclaration,
)
from isa.spec import Instruction
from isa.target import TARGETS

if TYPE_CHECKING:
    from isa.files.reroll import RolledStream
    from isa.storages import Storages

Files = dict[str, bytes]

ENGINE_FILES: Mapping[Engine, str] = {
    Engine.tensor: "PE",
    Engine.scalar: "Activation",
    Engine.gpsimd: "Pool",
    Engine.vector: "DVE",
    Engine.sync: "SP",
}
"""Hardware names of the engines, as in public profiles; they name a stream's files."""

_ENGINES = Engine.__members__
_ON_CHIP = tuple(memory.value for memory in Memory if memory.on_chip)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a container holds: the program, and what its writer noted beside it. `digest` is the
    SHA-256 of all its files, by which results about the program can be kept."""

    program: Program
    metadata: dict[str, Any]
    digest: bytes = b""


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def program_files(program: Program, metadata: Mapping[str, Any]) -> Files:
    """The files of a program. Raises NeuronError not-encodable."""
    try:
        info = {
            "metadata": dict(metadata),
            "name": program.name,
            "target": program.target,
            "tool_version": f"isa {table_digest()}",
        }
        files = {
            "info.json": _json(info),
            "graph.json": _json(_graph(program)),
            "kernel_debug_info.json": _json(
                {"locations": [astuple(location) for location in program.locations]}
            ),
        }
    except (TypeError, ValueError) as error:
        raise NeuronError("not-encodable", f"{program.name} or its metadata: {error}") from error
    for number, tensor in enumerate(program.tensors):
        if tensor.data is not None:
            files[_constant_name(number)] = tensor.data
    for number, core in enumerate(program.cores):
        _add_core(files, f"sg{number:02d}/", core)
    return files


def _constant_name(tensor: int) -> str:
    return f"constants/{tensor:04d}.bin"


def _write_form(value: Any) -> int | str:
    """An int, or a polynomial as text."""
    return value if type(value) is int else str(value)


def _graph(program: Program) -> dict[str, Any]:
    return {
        "guards": [[_write_form(g.form), g.text, g.location] for g in program.guards],
        "parameter_names": program.parameter_names,
        "parameters": program.parameters,
        "results": program.results,
        "symbols": [[s.name, s.maximum, s.minimum, s.multiple_of] for s in program.symbols],
        "tensors": [
            {
                "constant": tensor.data is not None,
                "core": tensor.core,
                "dtype": tensor.dtype,
                "location": tensor.location,
                "name": tensor.name,
                "offset": _write_form(tensor.offset),
                "role": tensor.role,
                "shape": [_write_form(size) for size in tensor.shape],
                "within": tensor.within,
            }
            for tensor in program.tensors
        ],
    }


def _add_core(files: Files, folder: str, core: CoreProgram) -> None:
    definition = {
        "dma_queue": [{"name": q.name, "owner": q.engine.name} for q in core.queues],
        "engines": [engine.name for engine in core.streams],
        "storages": _write_storages(core.storages),
    }
    files[f"{folder}def.json"] = _json(definition)
    for engine, instructions in core.streams.items():
        if engine not in ENGINE_FILES:
            raise NeuronError("not-encodable", f"{engine.name} runs no stream of its own")
        name = f"{folder}{ENGINE_FILES[engine]}"
        rolled, stream = _encode(instructions, engine)
        description = {
            "instructions": len(instructions),
            "relocations": [astuple(relocation) for relocation in stream.relocations],
            "semaphores": rolled.semaphores,
            "templates": stream.count,
            "uses": rolled.uses.as_json(),
        }
        files[f"{name}.json"] = _json(description)
        files[f"{name}.bin"] = stream.slots
        files[f"{name}.operands.bin"] = stream.operands


def _encode(
    instructions: Sequence[Instruction], engine: Engine
) -> tuple[RolledStream, EncodedStream]:
    """A stream re-rolled, and its templates in binary."""
    from isa.columns.rolled import LIMIT
    from isa.files.reroll import reroll

    if len(instructions) > LIMIT:
        raise NeuronError(
            "not-encodable",
            f"the {engine.name} stream has {len(instructions)} instructions; a container holds at "
            f"most {LIMIT} a stream",
        )
    try:
        rolled = reroll(instructions)
        return rolled, encode_stream(rolled.templates, engine, len(instructions))
    except MALFORMED:
        encode_stream(instructions, engine)  # names the instruction and the field
        raise


def _write_storages(storages: Sequence[OnChipAllocation]) -> list[Any]:
    """The different forms of allocations, and the rows of their numbers and offsets."""
    from isa.columns.rolled import roll_rows
    from isa.storages import in_columns

    forms, order, numbers = in_columns(storages)
    return [forms, roll_rows(order, numbers).as_json()]


def _read_storages(value: Any) -> Storages:
    from isa.columns.rolled import expand_columns, rows_from_json
    from isa.storages import StorageColumns, StorageForm, Storages

    rows, uses = value
    forms = []
    for stem, memory, dtype, shape, *others in rows:
        names = _text(stem), _one_of(memory, _ON_CHIP, "memory"), _one_of(dtype, DTYPES, "dtype")
        forms.append(StorageForm(*names, tuple(map(_number, shape)), *map(_number, others)))
    order, numbers = expand_columns(rows_from_json(uses))
    if any(columns.shape[1] != 2 for columns in numbers):
        raise ValueError("an allocation is a number and an offset")
    if order.size and not 0 <= int(order.min()) <= int(order.max()) < len(forms):
        raise ValueError("an allocation of a form that there is none of")
    return Storages(StorageColumns(forms, order, numbers))


def read_files(files: Files) -> Contents:
    """The program that `program_files` wrote.

    Raises NeuronError, or one of `isa.files.encoding.MALFORMED`, on any other files.
    """
    remaining = dict(files)
    info = json.loads(remaining.pop("info.json"))
    graph = json.loads(remaining.pop("graph.json"))
    debug = json.loads(remaining.pop("kernel_debug_info.json"))
    symbols = _read_symbols(graph["symbols"])
    tensors = [
        _read_tensor(number, row, symbols, remaining, debug["locations"])
        for number, row in enumerate(graph["tensors"])
    ]
    for tensor in tensors:
        if tensor.within is not None and tensors[_index(tensor.within, tensors)].within is not None:
            raise ValueError(f"{tensor.name} lies within a tensor without memory of its own")
    if len(graph["parameters"]) != len(graph["parameter_names"]):
        raise ValueError("parameters and their names differ in number")
    cores: list[CoreProgram] = []
    while (folder := f"sg{len(cores):02d}/") + "def.json" in remaining:
        cores.append(_read_core(remaining, folder, symbols))
    if remaining:
        raise ValueError(f"unexpected files: {', '.join(sorted(remaining))}")
    program = Program(
        _text(info["name"]),
        _one_of(info["target"], TARGETS, "target"),
        cores,
        tensors,
        [_index(number, tensors) for number in graph["parameters"]],
        [_text(name) for name in graph["parameter_names"]],
        [_index(number, tensors) for number in graph["results"]],
        list(symbols.values()),
        [
            Guard(_read_form(form, symbols), _text(text), _place(location, debug["locations"]))
            for form, text, location in graph["guards"]
        ],
        [_read_location(row) for row in debug["locations"]],
    )
    return Contents(program, dict(info["metadata"]))


def _read_symbols(rows: list[list[Any]]) -> dict[str, Any]:
    if not rows:
        return {}
    from isa.affine import Symbol

    symbols = {row[0]: Symbol(*row) for row in rows}
    if len(symbols) < len(rows):
        raise ValueError("two launch symbols have one name")
    return symbols


def _read_form(value: Any, symbols: Symbols) -> Any:
    if type(value) is int:
        return value
    from isa.affine import parse_form

    return parse_form(_text(value), symbols, {})


def _read_tensor(
    number: int, row: dict[str, Any], symbols: Symbols, files: Files, locations: list[Any]
) -> TensorDeclaration:
    return TensorDeclaration(
        _text(row["name"]),
        _one_of(row["dtype"], DTYPES, "dtype"),
        tuple(_read_form(size, symbols) for size in row["shape"]),
        _one_of(row["role"], ROLES, "role"),
        None if row["core"] is None else _number(row["core"]),
        files.pop(_constant_name(number)) if row["constant"] else None,
        _place(row["location"], locations),
        None if row["within"] is None else _number(row["within"]),
        _read_form(row["offset"], symbols),
    )


def _read_core(files: Files, folder: str, symbols: Symbols) -> CoreProgram:
    from isa.columns.rolled import rows_from_json
    from isa.files.reroll import RolledStream, expand

    definition = json.loads(files.pop(f"{folder}def.json"))
    streams: dict[Engine, MutableSequence[Instruction]] = {}
    for name in definition["engines"]:
        engine = _ENGINES[name]
        file = f"{folder}{ENGINE_FILES[engine]}"
        description = json.loads(files.pop(f"{file}.json"))
        length = _number(description["instructions"])
        stream = EncodedStream(
            description["templates"],
            files.pop(f"{file}.bin"),
            files.pop(f"{file}.operands.bin"),
            tuple(
                Relocation(_number(entry), _number(word), _text(text))
                for entry, word, text in description["relocations"]
            ),
        )
        rolled = RolledStream(
            decode_stream(stream, engine, symbols, length),
            [
                (_read_pairs(waits), _read_pairs(updates))
                for waits, updates in description["semaphores"]
            ],
            rows_from_json(description["uses"]),
        )
        streams[engine] = expand(rolled)
        if len(streams[engine]) != length:
            raise ValueError(f"{len(streams[engine])} instructions, {length} announced")
    return CoreProgram(
        streams,
        [Queue(_text(row["name"]), _ENGINES[row["owner"]]) for row in definition["dma_queue"]],
        _read_storages(definition["storages"]),
    )


def _read_pairs(rows: Any) -> tuple[tuple[int, int], ...]:
    """Semaphores with their amounts."""
    pairs = []
    for semaphore, amount in rows:
        if not (0 <= _number(semaphore) < SEMAPHORES and 0 <= _number(amount) < AMOUNT_LIMIT):
            raise ValueError(f"semaphore {semaphore}, amount {amount}")
        pairs.append((semaphore, amount))
    return tuple(pairs)


def _row(row: list[Any], record: type) -> list[Any]:
    if len(row) != len(fields(record)):
        raise ValueError(f"{record.__name__} with {len(row)} values")
    return row


def _read_location(row: list[Any]) -> SourceLocation:
    file, line, column, end, function, text = _row(row, SourceLocation)
    numbers = _number(line), _number(column), _number(end)
    return SourceLocation(_text(file), *numbers, _text(function), _text(text))


def _one_of(name: Any, known: Collection[str], what: str) -> str:
    """A name of those that there are."""
    if _text(name) not in known:
        raise ValueError(f"there is no {what} {name!r}")
    return str(name)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} is not text")
    return value


def _number(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is not an integer")
    return value


def _place(number: Any, locations: list[Any]) -> int:
    """The number of a source location; 0 is no line, in an empty source map too."""
    return 0 if number == 0 else _index(number, locations)


def _index(number: Any, items: list[Any]) -> int:
    if type(number) is not int or not 0 <= number < len(items):
        raise ValueError(f"there is nothing with the number {number!r}")
    return number


def pack_archive(files: Files) -> bytes:
    """The files as a tar archive (POSIX ustar), in name order, owned by nobody at time 0."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            member.mode = 0o644
            member.mtime = member.uid = member.gid = 0
            archive.addfile(member, io.BytesIO(files[name]))
    return buffer.getvalue()


def unpack_archive(data: bytes) -> Files:
    """The files of an archive, in memory. Raises ValueError or tarfile.TarError."""
    files: Files = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            if content is None or member.name in files:
                raise ValueError(f"unexpected archive member {member.name!r}")
            files[member.name] = content.read()
    return files
