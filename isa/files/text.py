"""Assembler text of a program, and back: `assemble(disassemble(p)) == p`.

A line is a directive or an instruction; `;` starts a comment.

    .program "matmul" target=trn2
    .symbol M minimum=128 maximum=8192 multiple_of=128
    .guard (M - 256) "M >= 256"
    .tensor t0 "a" float32[(M),512] input
    .parameters "a"=t0
    .results t1
    .location 0 "kernel.py" line=12 columns=4:37 "matmul" "nisa.nc_matmul(...)"
    .core
    .queue 0 "qSyncIO0" engine=sync
    .storage "lhs" sbuf float32[128,512] p0+128 offset=0x0 bytes=2048 location=0
    .stream vector
       0: TensorCopy $S[4]-=1 dst=... src=... $S[7]+=16@complete #0

A tensor may go on with `core=0` (its owner), `location=3` (its source line), `data="<base64>"` (the
bytes of a constant) and `within=t0+64`, in this order. The last names the tensor whose bytes it
has, and the first of them.

An instruction is: its index (may be left out), row, semaphore waits, fields in the order of the
row, semaphore updates, source location (left out: 0). Operands and values are those of
`isa.files.value_text`. Semaphores follow the notation of the public profiles with one difference: a
wait here also takes its amount off, so it reads `$S[4]-=1` (issue when semaphore 4 holds at least
1, and subtract 1) where those print `$S[4]>=1`; an update is `$S[7]+=16@complete`.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from isa.dtypes import DTYPES
from isa.enums import Engine, Memory
from isa.errors import NeuronError
from isa.errors.calls import named_arguments
from isa.files.codecs import RowClass
from isa.files.value_text import Cursor, FieldText, field_text, print_integer, print_integers
from isa.machine import MACHINE_INSTRUCTIONS
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

_ON_CHIP = {memory.value: memory.value for memory in Memory if memory.on_chip}


@named_arguments
def disassemble(program: Program) -> str:
    r"""The whole program as text.

    >>> program = assemble('.program "idle" target=trn2\n.core\n.stream vector\nHalt')
    >>> print(disassemble(program))
    .program "idle" target=trn2
    .parameters
    .results
    <BLANKLINE>
    .core
    .stream vector
         0: Halt #0
    <BLANKLINE>
    """
    return "\n".join(_lines(program)) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text)


def _lines(program: Program) -> Iterator[str]:
    yield f".program {_quoted(program.name)} target={program.target}"
    for symbol in program.symbols:
        maximum = "none" if symbol.maximum is None else symbol.maximum
        yield (
            f".symbol {symbol.name} minimum={symbol.minimum} maximum={maximum} "
            f"multiple_of={symbol.multiple_of}"
        )
    for guard in program.guards:
        place = f" #{guard.location}" if guard.location else ""
        yield f".guard {print_integer(guard.form)} {_quoted(guard.text)}{place}"
    for number, tensor in enumerate(program.tensors):
        yield _tensor_line(number, tensor)
    names = zip(program.parameter_names, program.parameters, strict=True)
    yield " ".join([".parameters", *[f"{_quoted(name)}=t{tensor}" for name, tensor in names]])
    yield " ".join([".results", *[f"t{tensor}" for tensor in program.results]])
    for number, location in enumerate(program.locations):
        yield (
            f".location {number} {_quoted(location.file)} line={location.line} "
            f"columns={location.column}:{location.end_column} "
            f"{_quoted(location.function)} {_quoted(location.text)}"
        )
    for core in program.cores:
        yield ""
        yield ".core"
        for number, queue in enumerate(core.queues):
            yield f".queue {number} {_quoted(queue.name)} engine={queue.engine.name}"
        for storage in core.storages:
            yield (
                f".storage {_quoted(storage.name)} {storage.memory} "
                f"{storage.dtype}{print_integers(storage.shape)} "
                f"p{storage.start_partition}+{storage.partitions} offset={storage.offset:#x} "
                f"bytes={storage.bytes_per_partition} location={storage.location}"
            )
        for engine, stream in core.streams.items():
            yield f".stream {engine.name}"
            for index, instruction in enumerate(stream):
                yield f"  {index:>4}: {print_instruction(instruction)}"


def _tensor_line(number: int, tensor: TensorDeclaration) -> str:
    core = "" if tensor.core is None else f" core={tensor.core}"
    data = "" if tensor.data is None else f' data="{b64encode(tensor.data).decode()}"'
    location = f" location={tensor.location}" if tensor.location else ""
    within = ""
    if tensor.within is not None:
        within = f" within=t{tensor.within}+{print_integer(tensor.offset)}"
    return (
        f".tensor t{number} {_quoted(tensor.name)} {tensor.dtype}{print_integers(tensor.shape)} "
        f"{tensor.role}{core}{location}{data}{within}"
    )


@named_arguments
def print_instruction(instruction: Instruction) -> str:
    """One instruction, without its index.

    >>> from isa.machine.control import DrainQueue
    >>> print_instruction(Instruction(DrainQueue, Engine.sync, (2,), waits=((4, 16),), location=3))
    'DrainQueue $S[4]-=16 queue=2 #3'
    """
    row: RowClass = instruction.row
    parts = [row.name]
    parts += [f"$S[{semaphore}]-={amount}" for semaphore, amount in instruction.waits]
    parts += [
        f"{name}={text.print(value)}"
        for (name, text), value in zip(_texts(row), instruction.values)
    ]
    parts += [f"$S[{semaphore}]+={amount}@complete" for semaphore, amount in instruction.updates]
    parts.append(f"#{instruction.location}")
    return " ".join(parts)


@cache
def _texts(row: RowClass) -> tuple[tuple[str, FieldText], ...]:
    return tuple((name, field_text(field)) for name, field in row.fields.items())


@named_arguments
def assemble(text: str) -> Program:
    """The program that `text` denotes.

    Raises NeuronError assembler-syntax, with line and column.

    >>> program = assemble('''
    ... .program "idle" target=trn2
    ... .core
    ... .stream vector
    ...   Nop $S[4]+=1@complete  ; the other stream waits for this
    ...   Halt
    ... .stream gpsimd
    ...   Nop $S[4]-=1
    ...   Halt
    ... ''')
    >>> [(engine.name, len(code)) for engine, code in program.cores[0].streams.items()]
    [('vector', 2), ('gpsimd', 2)]
    >>> assemble(disassemble(program)) == program
    True
    """
    reader = _Reader()
    cursor = Cursor("", 0, reader.symbols)
    for number, line in enumerate(text.split("\n"), start=1):
        cursor = Cursor(line.rstrip("\r"), number, reader.symbols)
        if cursor.at_end():
            continue
        try:
            reader.line(cursor)
        except ValueError as error:  # an absurdly long integer, or bad base64
            raise cursor.error(str(error)) from error
        if not cursor.at_end():
            raise cursor.error("expected the end of the line")
    return reader.finish(cursor)


def _problems(program: Program) -> Iterator[str]:
    """Numbers that stand for lines and tensors that there are none of."""
    lines, tensors = range(max(1, len(program.locations))), program.tensors
    for number, tensor in enumerate(tensors):
        if tensor.location not in lines:
            yield f"t{number} is of location {tensor.location}, which there is none of"
        if (within := tensor.within) is not None:
            if within not in range(len(tensors)) or tensors[within].within is not None:
                yield f"t{number} lies within t{within}, which has no memory of its own"
    for guard in program.guards:
        if guard.location not in lines:
            yield f"a guard is of location {guard.location}, which there is none of"


class _Reader:
    """Builds a program line by line."""

    def __init__(self) -> None:
        self.symbols: dict[str, Any] = {}
        self.program: Program | None = None
        self.stream: list[Instruction] | None = None
        self.engine = Engine.unknown

    def line(self, cursor: Cursor) -> None:
        if not cursor.accept("."):
            self._instruction(cursor)
            return
        directive = cursor.choice(_DIRECTIVES, "a directive")
        cursor.skip()
        if self.program is None and directive is not _Reader._program:
            raise cursor.error("expected `.program` before any other directive")
        directive(self, cursor)

    def finish(self, cursor: Cursor) -> Program:
        if self.program is None:
            raise cursor.error("expected a `.program` line")
        for problem in _problems(self.program):
            raise cursor.error(problem)
        return self.program

    def _the_program(self) -> Program:
        assert self.program is not None
        return self.program

    def _core(self, cursor: Cursor) -> CoreProgram:
        cores = self._the_program().cores
        if not cores:
            raise cursor.error("expected `.core` before this")
        return cores[-1]

    def _program(self, cursor: Cursor) -> None:
        if self.program is not None:
            raise cursor.error("a second `.program`")
        name = cursor.string()
        cursor.expect(" target=")
        self.program = Program(name, cursor.choice(TARGETS, "a target").name, [], [], [], [], [])

    def _symbol(self, cursor: Cursor) -> None:
        from isa.affine import Symbol

        name = cursor.word("the name of a symbol")
        if name in self.symbols:
            raise cursor.error(f"a second symbol {name}")
        cursor.expect(" minimum=")
        minimum = cursor.plain_integer()
        cursor.expect(" maximum=")
        maximum = None if cursor.accept("none") else cursor.plain_integer()
        cursor.expect(" multiple_of=")
        try:
            symbol = Symbol(name, maximum, minimum, cursor.plain_integer())
        except NeuronError as error:
            raise cursor.error(error.what) from error
        self.symbols[name] = symbol
        self._the_program().symbols.append(symbol)

    def _guard(self, cursor: Cursor) -> None:
        polynomial = cursor.integer()
        cursor.expect(" ")
        text = cursor.string()
        location = cursor.plain_integer("a source location") if cursor.accept(" #") else 0
        self._the_program().guards.append(Guard(polynomial, text, location))

    def _tensor(self, cursor: Cursor) -> None:
        tensors = self._the_program().tensors
        cursor.expect("t")
        _in_order(cursor, len(tensors), "tensor")
        cursor.expect(" ")
        name = cursor.string()
        cursor.expect(" ")
        dtype = cursor.choice(DTYPES, "a dtype").name
        shape = cursor.integers()
        cursor.expect(" ")
        role = cursor.choice({role: role for role in ROLES}, "a role")
        core = cursor.plain_integer() if cursor.accept(" core=") else None
        location = cursor.plain_integer() if cursor.accept(" location=") else 0
        data = b64decode(cursor.string(), validate=True) if cursor.accept(" data=") else None
        within, offset = None, 0
        if cursor.accept(" within=t"):
            within = cursor.plain_integer("the number of a tensor")
            cursor.expect("+")
            offset = cursor.integer()
        tensors.append(
            TensorDeclaration(name, dtype, shape, role, core, data, location, within, offset)
        )

    def _parameters(self, cursor: Cursor) -> None:
        program = self._the_program()
        while not cursor.at_end():
            program.parameter_names.append(cursor.string())
            cursor.expect("=")
            program.parameters.append(self._tensor_number(cursor))

    def _results(self, cursor: Cursor) -> None:
        while not cursor.at_end():
            self._the_program().results.append(self._tensor_number(cursor))

    def _tensor_number(self, cursor: Cursor) -> int:
        cursor.expect("t")
        number = cursor.plain_integer("the number of a tensor")
        if not 0 <= number < len(self._the_program().tensors):
            raise cursor.error(f"there is no tensor t{number} before this line")
        return number

    def _location(self, cursor: Cursor) -> None:
        locations = self._the_program().locations
        _in_order(cursor, len(locations), "location")
        cursor.expect(" ")
        file = cursor.string()
        cursor.expect(" line=")
        line = cursor.plain_integer()
        cursor.expect(" columns=")
        column = cursor.plain_integer()
        cursor.expect(":")
        end_column = cursor.plain_integer()
        cursor.expect(" ")
        function = cursor.string()
        cursor.expect(" ")
        locations.append(SourceLocation(file, line, column, end_column, function, cursor.string()))

    def _begin_core(self, cursor: Cursor) -> None:
        self._the_program().cores.append(CoreProgram({}, []))
        self.stream = None

    def _queue(self, cursor: Cursor) -> None:
        queues = self._core(cursor).queues
        _in_order(cursor, len(queues), "queue")
        cursor.expect(" ")
        name = cursor.string()
        cursor.expect(" engine=")
        queues.append(Queue(name, cursor.choice(Engine.__members__, "an engine")))

    def _storage(self, cursor: Cursor) -> None:
        storages = self._core(cursor).storages
        name = cursor.string()
        cursor.expect(" ")
        memory = cursor.choice(_ON_CHIP, "a memory on chip")
        cursor.expect(" ")
        dtype = cursor.choice(DTYPES, "a dtype").name
        shape = cursor.integers()
        cursor.expect(" p")
        start = cursor.plain_integer()
        cursor.expect("+")
        partitions = cursor.plain_integer()
        cursor.expect(" offset=")
        offset = cursor.plain_integer()
        cursor.expect(" bytes=")
        size = cursor.plain_integer()
        cursor.expect(" location=")
        location = cursor.plain_integer()
        storages.append(
            OnChipAllocation(name, memory, dtype, shape, start, partitions, offset, size, location)
        )

    def _begin_stream(self, cursor: Cursor) -> None:
        streams = self._core(cursor).streams
        self.engine = cursor.choice(Engine.__members__, "an engine")
        if self.engine in streams:
            raise cursor.error(f"a second stream of {self.engine.name} in this core")
        self.stream = streams[self.engine] = []

    def _instruction(self, cursor: Cursor) -> None:
        if self.stream is None:
            raise cursor.error("expected `.stream` before instructions")
        if cursor.line[cursor.position].isdigit():
            _in_order(cursor, len(self.stream), "instruction")
            cursor.expect(":")
            cursor.skip()
        self.stream.append(read_instruction(cursor, self.engine))


_DIRECTIVES: dict[str, Callable[[_Reader, Cursor], None]] = {
    "program": _Reader._program,
    "symbol": _Reader._symbol,
    "guard": _Reader._guard,
    "tensor": _Reader._tensor,
    "parameters": _Reader._parameters,
    "results": _Reader._results,
    "location": _Reader._location,
    "core": _Reader._begin_core,
    "queue": _Reader._queue,
    "storage": _Reader._storage,
    "stream": _Reader._begin_stream,
}


def _in_order(cursor: Cursor, expected: int, what: str) -> None:
    """Read the number of an item of a list that is written in order."""
    start = cursor.position
    number = cursor.plain_integer(f"the number of the {what}")
    if number != expected:
        cursor.position = start
        raise cursor.error(f"expected {what} {expected}, as they come in order")


def read_instruction(cursor: Cursor, engine: Engine) -> Instruction:
    """The instruction at the cursor, for the stream of `engine`."""
    start = cursor.position
    row = cursor.choice(MACHINE_INSTRUCTIONS, "an instruction")
    if engine not in row.engines:
        cursor.position = start
        raise cursor.error(f"{row.name} does not run on {engine.name}")
    waits = _semaphores(cursor, _WAIT, "")
    values = []
    for name, text in _texts(row):
        cursor.skip()
        cursor.expect(f"{name}=")
        values.append(text.read(cursor))
    updates = _semaphores(cursor, _UPDATE, "@complete")
    cursor.skip()
    location = cursor.plain_integer("a source location") if cursor.accept("#") else 0
    return Instruction(row, engine, tuple(values), waits, updates, location)


def _semaphores(cursor: Cursor, operator: str, end: str) -> tuple[tuple[int, int], ...]:
    """Waits or updates, as the operator says, up to what is neither of this kind."""
    pairs = []
    cursor.skip()
    while found := _SEMAPHORE.match(cursor.line, cursor.position):
        if operator == _WAIT and found[2] == _UPDATE:
            break  # of a row without fields, whose updates follow its waits
        cursor.position = found.end(1)
        cursor.expect(operator)
        semaphore = int(found[1][3:-1])
        pairs.append((semaphore, cursor.plain_integer("an amount")))
        cursor.expect(end)
        cursor.skip()
    return tuple(pairs)


_WAIT, _UPDATE = "-=", "+="
_SEMAPHORE = re.compile(r"(\$S\[[0-9]{1,9}\])([-+]=|)")
