"""Tile IR to text. The grammar is in `nki.ir.text`."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from isa import affine
from isa.fields import REQUIRED, Attribute, Field, Kind
from isa.program import SourceLocation
from nki.ir import locations
from nki.ir.nodes import Access, Loop, Node, Op, Register, Tensor, TracedKernel, tensors_of, walk


def print_kernel(kernel: TracedKernel) -> str:
    """The text of a kernel, ending in a line feed.

    >>> import nki, nki.language as nl
    >>> @nki.jit(target="trn2")
    ... def kernel(a):
    ...     nl.store(a, nl.load(a))
    >>> print(print_kernel(kernel.trace(nki.TensorSpec((128, 8), nl.float32))).splitlines()[0])
    kernel kernel target=trn2
    """
    return Printer().kernel(kernel)


def registers_of(nodes: list[Node]) -> list[Register]:
    """Every register that the nodes use, in order of first appearance."""
    found: dict[Register, None] = {}

    def visit(value: Any) -> None:
        if isinstance(value, Register):
            found.setdefault(value)
        elif isinstance(value, affine.Affine):
            for register, _ in value.terms:
                found.setdefault(register)
        elif isinstance(value, affine.Predicate):
            visit(value.form)
        elif isinstance(value, Access):
            visit(value.offset)
            visit(value.vector_offset)
            visit(value.limits and value.limits[0])
            visit(value.storage.in_root()[1])

    for node in walk(nodes):
        if isinstance(node, Op):
            for value in node.values:
                visit(value)
        elif isinstance(node, Loop):
            for value in (node.variable, node.lower, node.upper):
                visit(value)
        else:
            visit(node.register)
    for register in list(found):
        visit(register.lower)
        visit(register.upper)
    return list(found)


def _moved(nodes: list[Node]) -> list[Tensor]:
    """The tensors that nodes use whose places within others depend on registers, in order of first
    appearance."""
    found: dict[Tensor, None] = {}
    for node in walk(nodes):
        for tensor in tensors_of(node) if isinstance(node, Op) else ():
            inner: Tensor | None = tensor
            while inner is not None:
                if isinstance(inner.offset, affine.Affine):
                    found.setdefault(inner)
                inner = inner.within
    return list(found)


def quote(text: str) -> str:
    """A string literal on one line."""
    return (
        json.dumps(text, ensure_ascii=False)
        .replace("\x85", "\\u0085")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )


class Printer:
    """Collects the lines of one text."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._locations: dict[SourceLocation, int] = {}
        self._labels: dict[Op, int] = {}

    def kernel(self, kernel: TracedKernel) -> str:
        add = self.lines.append
        add(f"kernel {kernel.name} target={kernel.target}")
        for symbol in kernel.symbols:
            most = "" if symbol.maximum is None else f" max={symbol.maximum}"
            multiple = f" multiple_of={symbol.multiple_of}"
            add(f"symbol {symbol.name} min={symbol.minimum}{most}{multiple}")
        for guard in kernel.guards:
            place = self._location(guard.location)
            add(f"guard {_bracketed(guard.form)} {quote(guard.text)}{place}")
        for tensor in kernel.tensors:
            add(self._tensor(tensor, (kernel.placement or {}).get(tensor)))
        for tensor, name in zip(kernel.parameters, kernel.parameter_names, strict=True):
            add(f"input %t{tensor.number} {quote(name)}")
        for tensor in kernel.results:
            add(f"result %t{tensor.number}")
        for core, body in enumerate(kernel.bodies):
            add(f"core {core}:")
            for register in registers_of(body):
                add("  " + self._register(register))
            for tensor in _moved(body):
                add(f"  place %t{tensor.number} at={_bracketed(tensor.offset)}")
            self.number(body)
            self.block(body, "  ")
        for location, number in self._locations.items():
            add(
                f"location {number} {quote(location.file)} {location.line} {location.column} "
                f"{location.end_column} {quote(location.function)} {quote(location.text)}"
            )
        return "\n".join(self.lines) + "\n"

    def number(self, nodes: list[Node]) -> None:
        """Give a label to every operation that an `after` edge names."""
        named = {op for node in walk(nodes) if isinstance(node, Op) for op in node.after}
        for node in walk(nodes):
            if node in named and isinstance(node, Op):
                self._labels.setdefault(node, len(self._labels))

    def block(self, nodes: Iterable[Node], indent: str) -> None:
        """Append the lines of nodes, each starting with `indent`."""
        for node in nodes:
            if isinstance(node, Op):
                self.lines.append(indent + self.op(node))
                continue
            if isinstance(node, Loop):
                unroll = " unroll" if node.unroll else ""
                head = (
                    f"loop %r{node.variable.number} = {_form(node.lower)} to {_form(node.upper)} "
                    f"step {node.step}{unroll}{self._location(node.location)}:"
                )
            else:
                head = f"while %r{node.register.number}{self._location(node.location)}:"
            self.lines.append(indent + head)
            self.block(node.body, indent + "  ")

    def op(self, op: Op) -> str:
        """One operation, on one line."""
        words = [op.row.name]
        if op in self._labels:
            words.insert(0, f"!{self._labels[op]}:")
        for (name, field), value in zip(op.row.fields.items(), op.values, strict=True):
            if not is_default(field, value):
                words.append(f"{name}={value_text(field, value)}")
        if op.name is not None:
            words.append(f"name={quote(op.name)}")
        if op.after:
            edges = ", ".join(f"!{self._labels[other]}" for other in op.after)
            words.append(f"after=({edges})")
        return " ".join(words) + self._location(op.location)

    def _tensor(self, tensor: Tensor, place: tuple[int, int] | None) -> str:
        shape = ", ".join(map(_inner, tensor.shape))
        text = (
            f"tensor %t{tensor.number} {quote(tensor.name)}: "
            f"{tensor.memory.value} {tensor.dtype}[{shape}]"
        )
        if tensor.role != "local":
            text += f" role={tensor.role}"
        if tensor.core is not None:
            text += f" core={tensor.core}"
        if tensor.address is not None:
            text += f" address=({tensor.address[0]}, {tensor.address[1]})"
        if place is not None:
            text += f" place=({place[0]}, {place[1]})"
        if tensor.within is not None:
            text += f" within=%t{tensor.within.number}"
            if not isinstance(tensor.offset, affine.Affine):
                text += f" at={_bracketed(tensor.offset)}"
        if tensor.data is not None:
            text += f" data={base64.b64encode(tensor.data.tobytes()).decode('ascii')}"
        return text + self._location(tensor.location)

    def _register(self, register: Register) -> str:
        text = f"register %r{register.number} {quote(register.name)}"
        if register.lower is not None:
            text += f" from {_form(register.lower)}"
        if register.upper is not None:
            text += f" to {_form(register.upper)}"
        return text + self._location(register.location)

    def _location(self, location: Any) -> str:
        if location is None:
            return ""
        resolved = locations.resolve(location)
        if resolved is None:
            return ""
        number = self._locations.setdefault(resolved, len(self._locations))
        return f" loc={number}"


def is_default(field: Field, value: Any) -> bool:
    """Whether printing may leave the value out because parsing puts it back."""
    default = field.default
    if default is REQUIRED:
        return False
    return value is default or (type(value) is type(default) and value == default)


def access_text(access: Access) -> str:
    """`%t3[128, 512 : 512, 1 @ 0]` and what follows it."""
    storage = access.storage
    shape = ", ".join(map(_inner, access.shape))
    strides = ", ".join(map(_inner, access.strides))
    text = f"%t{storage.number}[{shape} : {strides} @ {_inner(access.offset)}]"
    if access.dtype != storage.dtype:
        text += f":{access.dtype}"
    if access.vector_offset is not None:
        text += (
            f" rows({access_text(access.vector_offset)} * {_bracketed(access.vector_stride)} < "
            f"{_bracketed(access.vector_bound)})"
        )
    if access.limits is not None:
        text += f" inside({', '.join(map(_bracketed, access.limits))})"
    return text


def value_text(field: Field, value: Any) -> str:
    """The text of one field's value."""
    if value is None:
        return "none"
    if isinstance(value, Access):
        return access_text(value)
    if isinstance(field, Attribute):
        return _KINDS[field.kind](value)
    return _number(value)


def _inner(form: Any) -> str:
    """A form between brackets, where a comma, colon, @ or ] ends it."""
    return str(form)


def _bracketed(form: Any) -> str:
    """A form where a blank ends it: parentheses around anything but an integer."""
    return str(form) if isinstance(form, int) else f"({form})"


def _form(value: Any) -> str:
    if isinstance(value, Register):
        return f"%r{value.number}"
    return _bracketed(value)


def _number(value: Any) -> str:
    value = value.item() if hasattr(value, "item") else value
    return repr(value)


def _flag(value: Any) -> str:
    return "true" if value else "false"


def _accumulate(value: Any) -> str:
    if isinstance(value, affine.Predicate):
        return f"[{value}]"
    return _flag(value)


def _name(value: Any) -> str:
    return value.name


def _tuple(values: Any) -> str:
    return "(" + ", ".join(map(_bracketed, values)) + ")"


def _pattern(value: Any) -> str:
    return "(" + ", ".join(map(_tuple, value)) + ")"


def _enum(value: Enum) -> str:
    return value.name


_KINDS: dict[Kind, Callable[[Any], str]] = {
    Kind.flag: _flag,
    Kind.integer: _bracketed,
    Kind.float32: lambda value: repr(float(value)),
    Kind.alu: _name,
    Kind.activation: _name,
    Kind.pattern: _pattern,
    Kind.integers: _tuple,
    Kind.numbers: lambda values: "(" + ", ".join(map(_number, values)) + ")",
    Kind.register: _form,
    Kind.value: _form,
    Kind.target: str,
    Kind.accumulate: _accumulate,
    Kind.engine: _enum,
    Kind.reduce_command: _enum,
    Kind.dge_mode: _enum,
    Kind.dma_engine: _enum,
    Kind.oob_mode: _enum,
    Kind.perf_mode: _enum,
    Kind.condition: _enum,
    Kind.register_operation: _enum,
    Kind.number: _number,
    Kind.priority: str,
}
