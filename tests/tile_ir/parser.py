"""Text to tile IR. The grammar is in `nki.ir.text`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any

from tile_ir.cursor import BASE64, INTEGER, NAME, NUMBER, WORD, Line

from isa import affine
from isa.alu import ACTIVATIONS, ALU
from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.errors import NeuronError
from isa.fields import ENUM_KINDS, REQUIRED, Attribute, Field, Kind
from isa.operations import OPERATIONS
from isa.program import Guard, SourceLocation
from isa.target import TARGETS
from nki.ir.nodes import (
    Access,
    LimitedAccess,
    Loop,
    Node,
    Op,
    Register,
    Tensor,
    TracedKernel,
    While,
)

_ROLES = ("input", "output", "inout", "local", "constant")


def parse_kernel(text: str) -> TracedKernel:
    """The kernel that `print_kernel` wrote; its locations are `SourceLocation`s.

    Raises NeuronError("ir-syntax") that names line and column of the first mistake.
    """
    parser = Parser(text)
    try:
        return parser.kernel()
    except RecursionError:
        line = parser.lines[min(parser.index, len(parser.lines) - 1)]
        raise NeuronError(
            "ir-syntax",
            f"line {line.number}, column 1: nested too deeply",
            notes=(line.text[:200],),
        ) from None


class Parser:
    """Recursive descent over the lines of one text."""

    def __init__(self, text: str) -> None:
        lines = [Line(n, t) for n, t in enumerate(text.split("\n"), 1)]
        self.lines = [line for line in lines if line.text.strip()]
        self.index = 0
        self.symbols: dict[str, Any] = {}
        self.tensors: dict[int, Tensor] = {}
        self.registers: dict[int, Register] = {}
        self.labels: dict[int, Op] = {}
        self.pending: list[tuple[Any, int, Line]] = []

    # Sections ------------------------------------------------------------------------------

    def kernel(self) -> TracedKernel:
        if not self.lines:
            raise NeuronError("ir-syntax", "line 1, column 1: expected `kernel`, found no text")
        line = self.lines[0]
        line.need("kernel")
        name = line.match(WORD, "the kernel's name")
        line.need("target=")
        target = line.match(NAME, "a target")
        if target not in TARGETS:
            line.fail(f"a target (one of {', '.join(TARGETS)})", line.position - len(target))
        line.end()
        self.index = 1
        kernel = TracedKernel(name, target, [], [], [], [], [])
        sections: dict[str, Callable[[TracedKernel, Line], None]] = {
            "symbol": self._symbol,
            "guard": self._guard,
            "tensor": self._tensor,
            "input": self._input,
            "result": self._result,
            "core": self._core,
            "location": self._location_entry,
        }
        locations: dict[int, SourceLocation] = {}
        self.locations = locations
        while self.index < len(self.lines):
            line = self.lines[self.index]
            self.index += 1
            if line.indent:
                line.fail("a section without indentation", 0)
            line.choice(sections, "a section")(kernel, line)
            line.end()
        for holder, number, line in self.pending:
            if number not in locations:
                line.fail(f"a location table that has entry {number}", 0)
            holder.location = locations[number]
        return kernel

    def _symbol(self, kernel: TracedKernel, line: Line) -> None:
        name = line.match(WORD, "the symbol's name")
        line.need("min=")
        low = line.integer()
        high = line.integer() if line.take("max=") else None
        line.need("multiple_of=")
        symbol = affine.Symbol(name, high, low, line.integer())
        self.symbols[name] = symbol
        kernel.symbols.append(symbol)

    def _guard(self, kernel: TracedKernel, line: Line) -> None:
        guard = Guard(self.form(line), line.string(), None)
        kernel.guards.append(guard)
        if line.take("loc="):
            self._locate(line, guard)

    def _tensor(self, kernel: TracedKernel, line: Line) -> None:
        number = self._numbered(line, "%t", "a tensor such as %t3")
        if number in self.tensors:
            line.fail("a tensor number that is not taken", line.position - len(str(number)) - 2)
        name = line.string()
        line.need(":")
        memory = line.choice({memory.value: memory for memory in Memory}, "a memory")
        dtype = line.choice({dtype: dtype for dtype in DTYPES}, "a dtype")
        line.need("[")
        shape = self.forms(line, "]")
        line.need("]")
        tensor = Tensor(number, name, memory, dtype, shape)
        if line.take("role="):
            tensor.role = line.choice({role: role for role in _ROLES}, "a role")
        if line.take("core="):
            tensor.core = line.integer()
        if line.take("address="):
            tensor.address = self._place(line)
        if line.take("place="):
            kernel.placement = kernel.placement or {}
            kernel.placement[tensor] = self._place(line)
        if line.take("within="):
            tensor.lie(self.tensor(line), self.form(line) if line.take("at=") else 0)
        if line.take("data="):
            tensor.data = self._data(line, tensor)
        self._location(line, tensor)
        self.tensors[number] = tensor
        kernel.tensors.append(tensor)

    def _place(self, line: Line) -> tuple[int, int]:
        line.need("(")
        partition = line.integer()
        line.need(",")
        offset = line.integer()
        line.need(")")
        return partition, offset

    def _data(self, line: Line, tensor: Tensor) -> Any:
        import numpy as np

        line.skip()
        start = line.position
        try:
            raw = base64.b64decode(line.match(BASE64, "base64"), validate=True)
            return np.frombuffer(raw, DTYPES[tensor.dtype].numpy).reshape(tensor.shape).copy()
        except (binascii.Error, ValueError, TypeError):
            line.fail(f"base64 of {tensor.dtype}{list(tensor.shape)}", start)

    def _input(self, kernel: TracedKernel, line: Line) -> None:
        kernel.parameters.append(self.tensor(line))
        kernel.parameter_names.append(line.string())

    def _result(self, kernel: TracedKernel, line: Line) -> None:
        kernel.results.append(self.tensor(line))

    def _location_entry(self, kernel: TracedKernel, line: Line) -> None:
        number = line.integer()
        file = line.string()
        numbers = line.integer(), line.integer(), line.integer()
        entry = SourceLocation(file, *numbers, function=line.string(), text=line.string())
        self.locations[number] = entry

    def _core(self, kernel: TracedKernel, line: Line) -> None:
        line.skip()
        start = line.position
        if line.integer() != len(kernel.bodies):
            line.fail(f"core {len(kernel.bodies)}", start)
        line.need(":")
        line.end()
        self.registers = {}
        self.labels = {}
        bounds: list[tuple[Register, Line]] = []
        while self._inside(line) and self.lines[self.index].take("register"):
            bounds.append((self._register(self.lines[self.index]), self.lines[self.index]))
            self.index += 1
        for register, declaration in bounds:
            register.lower = self.bound(declaration) if declaration.take("from") else None
            register.upper = self.bound(declaration) if declaration.take("to") else None
            self._location(declaration, register)
            declaration.end()
        while self._inside(line) and self.lines[self.index].take("place"):
            self._move(self.lines[self.index])
            self.index += 1
        kernel.bodies.append(self.block(line))

    def _move(self, line: Line) -> None:
        line.skip()
        start = line.position
        tensor = self.tensor(line)
        if tensor.within is None:
            line.fail("a tensor within another", start)
        line.need("at=")
        tensor.offset = self.form(line)
        line.end()

    def _register(self, line: Line) -> Register:
        number = self._numbered(line, "%r", "a register such as %r1")
        if number in self.registers:
            line.fail("a register number that is not taken", line.position - len(str(number)) - 2)
        self.registers[number] = Register(number, line.string())
        return self.registers[number]

    # Nodes ---------------------------------------------------------------------------------

    def _inside(self, parent: Line) -> bool:
        return self.index < len(self.lines) and self.lines[self.index].indent > parent.indent

    def block(self, parent: Line) -> list[Node]:
        """The nodes on the lines that are indented below the parent's."""
        nodes: list[Node] = []
        indent: int | None = None
        while self._inside(parent):
            line = self.lines[self.index]
            self.index += 1
            if indent is None:
                indent = line.indent
            if line.indent != indent:
                line.fail(f"{indent} blanks before the node", 0)
            nodes.append(self.node(line))
        return nodes

    def node(self, line: Line) -> Node:
        if line.take("loop"):
            variable = self.register(line)
            line.need("=")
            lower = self.bound(line)
            line.need("to")
            upper = self.bound(line)
            line.need("step")
            step = line.integer()
            loop = Loop(variable, lower, upper, step, [], line.take("unroll"))
            return self._with_body(line, loop)
        if line.take("while"):
            return self._with_body(line, While(self.register(line), []))
        return self.op(line)

    def _with_body(self, line: Line, node: Loop | While) -> Node:
        self._location(line, node)
        line.need(":")
        line.end()
        node.body = self.block(line)
        return node

    def op(self, line: Line) -> Op:
        line.skip()
        start, label = line.position, None
        if line.take("!"):
            label = line.integer()
            line.need(":")
        row = line.choice(OPERATIONS, "an operation")
        given: dict[str, Any] = {}
        op = Op(row, ())
        while not line.at_end:
            column = line.position
            if line.take("loc="):
                self._locate(line, op)
                continue
            key = line.name()
            if key in given or (key not in row.fields and key not in ("name", "after")):
                fields = ", ".join(name for name in row.fields if name not in given)
                line.fail(f"a field of {row.name} ({fields})", column)
            line.need("=")
            if key in row.fields:
                given[key] = self.value(line, row.fields[key])
            elif key == "name":
                op.name = line.string()
            else:
                op.after = self._after(line)
        values = []
        for name, field in row.fields.items():
            if name not in given and field.default is REQUIRED:
                line.fail(f"{name}=...")
            values.append(given.get(name, field.default))
        op.values = tuple(values)
        if label is not None:
            if label in self.labels:
                line.fail("a label that is not taken", start)
            self.labels[label] = op
        return op

    def _after(self, line: Line) -> tuple[Op, ...]:
        ops: list[Op] = []
        line.need("(")
        while not line.take(")"):
            if ops:
                line.need(",")
            line.need("!")
            column = line.position
            number = line.integer()
            if number not in self.labels:
                line.fail("the label of an operation above", column)
            ops.append(self.labels[number])
        return tuple(ops)

    def _location(self, line: Line, holder: Any) -> None:
        if line.take("loc="):
            self._locate(line, holder)

    def _locate(self, line: Line, holder: Any) -> None:
        self.pending.append((holder, line.integer(), line))

    # Values --------------------------------------------------------------------------------

    def _numbered(self, line: Line, prefix: str, expected: str) -> int:
        line.skip()
        if not line.text.startswith(prefix, line.position):
            line.fail(expected)
        line.position += len(prefix)
        return line.integer()

    def tensor(self, line: Line) -> Tensor:
        line.skip()
        start = line.position
        number = self._numbered(line, "%t", "a tensor such as %t3")
        if number not in self.tensors:
            line.fail("a declared tensor", start)
        return self.tensors[number]

    def register(self, line: Line) -> Register:
        line.skip()
        start = line.position
        number = self._numbered(line, "%r", "a register such as %r1")
        if number not in self.registers:
            line.fail("a declared register", start)
        return self.registers[number]

    def form(self, line: Line) -> Any:
        """An integer, or a form in parentheses."""
        if not line.take("("):
            return line.integer()
        text, column = line.until(")")
        line.need(")")
        return self._algebra(line, text, column)

    def forms(self, line: Line, stop: str) -> tuple[Any, ...]:
        """Forms with commas between them, up to the stop (not consumed)."""
        forms: list[Any] = []
        line.skip()
        while not line.text.startswith(stop, line.position):
            text, column = line.until("," + stop)
            forms.append(self._algebra(line, text, column))
            if not line.take(","):
                break
            line.skip()
        return tuple(forms)

    def bound(self, line: Line) -> Any:
        line.skip()
        if line.text.startswith("%r", line.position):
            return self.register(line)
        return self.form(line)

    def _algebra(self, line: Line, text: str, column: int) -> Any:
        if INTEGER.fullmatch(text):
            return int(text)
        try:
            return affine.parse_form(text, self.symbols, self._named_registers())
        except (NeuronError, ValueError) as error:
            line.fail(f"an index form ({getattr(error, 'what', error)})", column)

    def _named_registers(self) -> dict[str, Register]:
        return {f"%r{number}": register for number, register in self.registers.items()}

    def access(self, line: Line, may_index: bool = True) -> Access:
        tensor = self.tensor(line)
        line.need("[")
        shape = self.forms(line, ":")
        line.need(":")
        strides = self.forms(line, "@")
        line.need("@")
        text, column = line.until("]")
        offset = self._algebra(line, text, column)
        line.need("]")
        access = Access(tensor, tensor.dtype, shape, strides, offset)
        if len(shape) != len(strides):
            line.fail(f"{len(shape)} strides")
        if line.take(":"):
            access.dtype = line.choice({dtype: dtype for dtype in DTYPES}, "a dtype")
        if may_index and line.take("rows"):
            line.need("(")
            access.vector_offset = self.access(line, may_index=False)
            line.need("*")
            access.vector_stride = self.form(line)
            line.need("<")
            access.vector_bound = self.form(line)
            line.need(")")
        if line.take("inside("):
            first = self.form(line)
            line.need(",")
            access = LimitedAccess(access, (first, self.form(line)))
            line.need(")")
        return access

    def value(self, line: Line, field: Field) -> Any:
        # Enumerations may have a member of that name.
        named = isinstance(field, Attribute) and "none" in _members(field.kind)
        if not named and line.take("none"):
            return None
        if isinstance(field, Attribute):
            return _KINDS[field.kind](self, line)
        if line.text.startswith("%t", line.position):
            return self.access(line)
        if field.immediate:
            return self.number(line)
        line.fail("a view of a tensor")

    def number(self, line: Line) -> int | float:
        text = line.match(NUMBER, "a number")
        return int(text) if INTEGER.fullmatch(text) else float(text)

    def real(self, line: Line) -> float:
        return float(line.match(NUMBER, "a number"))

    def flag(self, line: Line) -> bool:
        return line.choice({"true": True, "false": False}, "true or false")

    def integers(self, line: Line) -> tuple[Any, ...]:
        return self._tuple(line, self.form)

    def pattern(self, line: Line) -> tuple[tuple[Any, ...], ...]:
        return self._tuple(line, self.integers)

    def _tuple(self, line: Line, item: Callable[[Line], Any]) -> tuple[Any, ...]:
        items: list[Any] = []
        line.need("(")
        while not line.take(")"):
            if items:
                line.need(",")
            items.append(item(line))
        return tuple(items)

    def accumulate(self, line: Line) -> Any:
        if not line.take("["):
            return self.flag(line)
        text, column = line.until("]")
        line.need("]")
        try:
            return affine.parse_predicate(text, self.symbols, self._named_registers())
        except (NeuronError, ValueError) as error:
            line.fail(f"a condition ({getattr(error, 'what', error)})", column)


def _members(kind: Kind) -> Mapping[str, Any]:
    return ENUM_KINDS[kind].__members__ if kind in ENUM_KINDS else {}


def _enum_reader(kind: Kind) -> Callable[[Parser, Line], Any]:
    members = _members(kind)
    return lambda parser, line: line.choice(members, f"a {kind.value}")


_KINDS: dict[Kind, Callable[[Parser, Line], Any]] = {
    Kind.flag: Parser.flag,
    Kind.integer: Parser.form,
    Kind.float32: Parser.real,
    Kind.alu: lambda parser, line: line.choice(ALU, "an ALU operator"),
    Kind.activation: lambda parser, line: line.choice(ACTIVATIONS, "an activation"),
    Kind.pattern: Parser.pattern,
    Kind.integers: Parser.integers,
    Kind.numbers: lambda parser, line: parser._tuple(line, parser.number),
    Kind.register: Parser.register,
    Kind.value: Parser.bound,
    Kind.target: lambda parser, line: line.integer(),
    Kind.accumulate: Parser.accumulate,
    Kind.number: Parser.number,
    Kind.priority: lambda parser, line: line.integer(),
    **{kind: _enum_reader(kind) for kind in ENUM_KINDS},
}
