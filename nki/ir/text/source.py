"""Tile IR to NKI source: a `@nki.jit` function that makes the same operations.

Before, as `nki.ir.text` has it, and after:

    tensor_copy dst=%t4[128, 64 : 64, 1 @ 0] src=%t3[128, 64 : 128, 2 @ 1] engine=vector

    nisa.tensor_copy(dst=t4, src=t3.ap([[128, 128], [2, 64]], offset=1), engine=nisa.engine.vector)

Every view of a part is an access pattern; places that depend on registers are `scalar_offset`s, and
rows that indices pick are `vector_select`s. Constants are written into the source.
"""

from __future__ import annotations

import base64
import math
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from keyword import iskeyword
from typing import Any

from isa import affine
from isa.enums import (
    DgeMode,
    DmaEngine,
    Engine,
    MatmulPerfMode,
    Memory,
    OobMode,
    ReduceCommand,
)
from isa.errors import NeuronError
from isa.fields import ENUM_KINDS, Attribute, Kind
from isa.target import resolve
from nki.ir import locations
from nki.ir.begins import begun, begun_by
from nki.ir.nodes import Access, Loop, Node, Op, Register, Tensor, TracedKernel, While, walk
from nki.ir.text.printer import is_default, registers_of
from nki.ir.views.layout import dense_strides

_SUM = '''

def register_of(*terms):
    """A register of the sum of registers, each times a number."""
    total = None
    for register, step in terms:
        tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.register_store(dst=tile, src=register)
        part = nl.multiply(tile, step)
        total = part if total is None else nl.add(total, part)
    return nisa.register_alloc(total)
'''


def print_source(kernel: TracedKernel) -> str:
    """The source of a kernel of one core. Raises NeuronError no-public-spelling, which names the
    line that an operation was made for."""
    return _Source(kernel).text()


class _Source:
    """Collects the lines of one function."""

    def __init__(self, kernel: TracedKernel) -> None:
        self.kernel = kernel
        self.target = resolve(kernel.target)
        self.lines: list[str] = []
        self.names: dict[Tensor, str] = {}
        self.has_sums = False

    def text(self) -> str:
        kernel = self.kernel
        if len(kernel.bodies) != 1 or kernel.symbols or kernel.guards:
            what = "a kernel of several cores, or with launch symbols"
            raise NeuronError("no-public-spelling", what)
        (body,) = kernel.bodies
        self._declare(body)
        self._block(body, "    ")
        results = ", ".join(self._name(tensor) for tensor in kernel.results)
        self.lines.append(f"    return {results}")
        given = ", ".join(self._name(tensor) for tensor in kernel.parameters)
        head = [
            '"""Printed from tile IR."""',
            "",
            *(["import base64", "import zlib", "", "import ml_dtypes", "import numpy as np", ""]
              if any(tensor.data is not None for tensor in kernel.tensors) else []),
            "import nki",
            "import nki.isa as nisa",
            "import nki.language as nl",
            "",
            *(_SUM.splitlines() if self.has_sums else []),
            "",
            f'@nki.jit(platform_target="{kernel.target}")',
            f"def {_identifier(kernel.name)}({given}):",
        ]  # fmt: skip
        return "\n".join([*head, *self.lines]) + "\n"

    def _declare(self, body: list[Node]) -> None:
        """What exists before the first operation: tensors that none begins, and registers."""
        own = begun(walk(body))
        for tensor in self.kernel.tensors:
            if tensor.within is not None:
                raise NeuronError("no-public-spelling", f"{tensor}, which lies within another one")
            if tensor not in own and tensor not in self.kernel.parameters:
                self.lines.append("    " + self._tensor(tensor))
        counted = {node.variable for node in walk(body) if isinstance(node, Loop)}
        for register in registers_of(body):
            if register not in counted:
                self.lines.append(f"    {_register(register)} = nisa.register_alloc(0)")

    def _name(self, tensor: Tensor) -> str:
        if tensor not in self.names:
            parameters = self.kernel.parameters
            is_given = tensor in parameters
            name = self.kernel.parameter_names[parameters.index(tensor)] if is_given else ""
            self.names[tensor] = _identifier(name) if is_given else f"t{tensor.number}"
        return self.names[tensor]

    def _tensor(self, tensor: Tensor) -> str:
        """The statement that makes a tensor."""
        name = self._name(tensor)
        if tensor.data is not None:
            return f"{name} = nl.shared_constant({_constant(tensor)})"
        memory = Memory.shared_hbm if tensor in self.kernel.results else tensor.memory
        shape = _tuple(tensor.shape)
        return f'{name} = nl.ndarray({shape}, dtype="{tensor.dtype}", buffer=nl.{memory.value})'

    def _block(self, nodes: Iterable[Node], indent: str) -> None:
        for node in nodes:
            if isinstance(node, Op):
                self.lines.append(indent + self._operation(node))
                continue
            self.lines.append(indent + _head(node))
            self._block(node.body, indent + "    ")

    def _operation(self, op: Op) -> str:
        row = op.row
        if (tensor := begun_by(op)) is not None:  # nl.ndarray
            return self._tensor(tensor)
        if not row.public or op.after:
            raise _no_spelling(op, f"nisa has no {row.name}" if not row.public else "an order")
        given = dict(zip(row.field_names, self._stated(op), strict=True))
        words = []
        for name, fields in row.parameters().items():
            values = [(row.fields[field], given[field]) for field in fields]
            if all(is_default(field, value) for field, value in values):
                continue
            spelled = [self._value(op, field, value) for field, value in values]
            if name in row.lists:
                kept = [text for text, (_, value) in zip(spelled, values) if value is not None]
                words.append(f"{name}=[{', '.join(kept)}]")
            else:
                words.append(f"{name}={spelled[0]}")
        return f"nisa.{row.name}({', '.join(words)})"

    def _stated(self, op: Op) -> tuple[Any, ...]:
        """The values without the engines and modes that the operation finds by itself."""
        values = list(op.values)
        for place, field in enumerate(op.row.fields.values()):
            if isinstance(field, Attribute) and field.kind in ENUM_KINDS:
                free = [*values[:place], field.default, *values[place + 1 :]]
                found = op.row.resolve(tuple(free), self.target)
                if all(new is old for new, old in zip(found, op.values)):
                    values = free
        return tuple(values)

    def _value(self, op: Op, field: Any, value: Any) -> str:
        if value is None:
            return "None"
        if isinstance(value, Access):
            return self._view(op, value)
        if isinstance(value, Register):
            return _register(value)
        if not isinstance(field, Attribute):
            return _number(value)
        if field.kind in ENUM_KINDS:
            return f"nisa.{_ENUMERATIONS[ENUM_KINDS[field.kind]]}.{value.name}"
        spell = _KINDS.get(field.kind)
        if spell is None or isinstance(value, (affine.Affine, affine.Predicate)):
            raise _no_spelling(op, f"{value} is no value of a call")
        return spell(value)

    def _view(self, op: Op, access: Access) -> str:
        """A tensor, or the part of it that a view has."""
        name, storage = self._name(access.storage), access.storage
        if access.limits is not None:
            raise _no_spelling(op, "a view whose end only a run knows")
        strides, shape = access.strides, access.shape
        if access.vector_offset is not None:
            strides = (access.vector_stride, *strides[1:])
            shape = (access.vector_bound, *shape[1:])
        offset: Any = access.offset
        terms: tuple[Any, ...] = ()
        if isinstance(offset, affine.Affine):
            offset, terms = offset.constant, tuple(offset.terms)
        dtype = "" if access.dtype == storage.dtype else f', dtype="{access.dtype}"'
        whole = (shape, strides) == (tuple(storage.shape), dense_strides(storage.shape))
        text = name
        if not whole or dtype or terms or not _is_zero(offset):
            pairs = ", ".join(f"[{stride}, {count}]" for stride, count in zip(strides, shape))
            start = "" if _is_zero(offset) else f", offset={offset}"
            if terms:
                index, step = self._index(terms)
                one = f"[[{strides[0]}, 1], [{step}, 1]]" if storage.pitch else f"[[{step}, 1]]"
                text = f"{text}.ap({one}{dtype})"
                dtype = f", scalar_offset={index}, indirect_dim={int(bool(storage.pitch))}"
            text = f"{text}.ap([{pairs}]{start}{dtype})"
        if access.vector_offset is not None:
            text += f".vector_select(0, {self._view(op, access.vector_offset)})"
        return text

    def _index(self, terms: tuple[Any, ...]) -> tuple[str, Any]:
        """A register, and the elements that one of it is worth. A view takes one register, and goes
        up with it, so that anything else is computed first."""
        if len(terms) == 1 and terms[0][1] > 0:
            ((register, step),) = terms
            return _register(register), step
        self.has_sums = True
        given = ", ".join(f"({_register(register)}, {step})" for register, step in terms)
        return f"register_of({given})", 1


def _is_zero(offset: Any) -> bool:
    return isinstance(offset, int) and offset == 0


def _no_spelling(op: Op, what: str) -> NeuronError:
    location = locations.resolve(op.location) if op.location is not None else None
    where = f" (for {location.text or location.function})" if location is not None else ""
    return NeuronError("no-public-spelling", f"{op.row.name}{where}: {what}", location=location)


def _head(node: Loop | While) -> str:
    """The line above a body."""
    if isinstance(node, While):
        return f"while {_register(node.register)}:"
    bounds = ", ".join(
        _register(bound) if isinstance(bound, Register) else str(bound)
        for bound in (node.lower, node.upper, node.step)
    )
    return f"for {_register(node.variable)} in nl.dynamic_range({bounds}):"


def _register(register: Register) -> str:
    return f"r{register.number}"


def _identifier(name: str) -> str:
    text = re.sub(r"\W", "_", name)
    return f"_{text}" if not text or text[0].isdigit() or iskeyword(text) else text


def _constant(tensor: Tensor) -> str:
    """An expression of what a constant holds."""
    data = tensor.data
    packed = base64.b64encode(zlib.compress(data.tobytes(), 9)).decode()
    return (
        f'np.frombuffer(zlib.decompress(base64.b64decode("{packed}")), '
        f'np.dtype("{data.dtype.name}")).reshape({_tuple(data.shape)})'
    )


def _tuple(values: Sequence[Any]) -> str:
    items = ", ".join(map(str, values))
    return f"({items},)" if len(values) == 1 else f"({items})"


def _number(value: Any) -> str:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _operator(value: Any) -> str:
    return f"nl.{value.name}"


def _nested(value: Any) -> str:
    return "[" + ", ".join(f"[{', '.join(map(str, pair))}]" for pair in value) + "]"


_ENUMERATIONS: dict[Any, str] = {
    DgeMode: "dge_mode",
    DmaEngine: "dma_engine",
    Engine: "engine",
    MatmulPerfMode: "matmul_perf_mode",
    OobMode: "oob_mode",
    ReduceCommand: "reduce_cmd",
}
"""The names of enumerations in `nki.isa`."""

_KINDS: dict[Kind, Callable[[Any], str]] = {
    Kind.flag: repr,
    Kind.integer: str,
    Kind.float32: lambda value: _number(float(value)),
    Kind.alu: _operator,
    Kind.activation: _operator,
    Kind.pattern: _nested,
    Kind.integers: _tuple,
    Kind.numbers: lambda values: _tuple([_number(value) for value in values]),
    Kind.value: str,
    Kind.accumulate: repr,
    Kind.number: _number,
    Kind.priority: str,
}
"""How an attribute's value is written."""
