"""Keys of sorts whose order is that of one input: integers by which the engines compare.

The engines compare in fp32, where neighbours among 32-bit keys are equal. So these are sums of two
numbers that fp32 has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.language as nl
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.host_kernels.bodies import ScalarBody, SortKernel, greater
from graph_compiler.host_kernels.elements import ElementStep
from graph_compiler.host_kernels.registers import kind
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.nests.evaluation import as_tile, evaluate, to_sizes
from isa.alu import ALU
from nki.ir.views.tensor import NkiTensor

_HALF, _WORD = 16, 32
_LOW = (1 << _HALF) - 1
_LEAST = -(1 << 31)


@dataclass(frozen=True, slots=True)
class SortKey:
    """What a comparator of the first input asks for. `key`: the steps from an element to what is
    compared, none where that is the element."""

    type: str
    largest: bool
    key: tuple[ElementStep, ...] = ()

    @property
    def is_wide(self) -> bool:
        """Whether fp32 does not tell all keys apart."""
        return PRIMITIVE_TYPES[self.type].bits > _HALF


def key_of(sort: SortKernel) -> SortKey | None:
    """By what a sort orders; None if that is no order of the first input alone. Both sides are
    compared as they are, or after equal steps."""
    body, (type, _) = sort.body, sort.inputs[0]
    if kind(type) not in ("real", "signed", "unsigned") or not body.steps:
        return None
    last, number = body.steps[-1], len(body.parameters) + len(body.steps) - 1
    if last.op not in _COMPARING or last.source != type or body.results != (number,):
        return None
    for largest in (True, False):
        (own,) = greater(type, largest).steps
        if last.attribute != own.attribute:
            continue
        for side in (0, 1):
            left, right = last.arguments
            one, other = _expression(body, left, side), _expression(body, right, 1 - side)
            if one is not None and one == other:
                return SortKey(type, largest != bool(side), _steps_to(body, left))
    return None


_COMPARING = frozenset({"compare"})
_ELEMENT = ("element",)


def _expression(body: ScalarBody, value: int, parameter: int) -> Any:
    """How a value is made of a parameter, as tuples; None where others take part."""
    if value < len(body.parameters):
        return _ELEMENT if value == parameter else None
    step = body.steps[value - len(body.parameters)]
    parts = [_expression(body, argument, parameter) for argument in step.arguments]
    if None in parts:
        return None
    return step.op, step.type, step.source, repr(step.attribute), tuple(parts)


def _steps_to(body: ScalarBody, value: int) -> tuple[ElementStep, ...]:
    """The steps to a value that is made of one parameter, which is their only argument."""
    count = len(body.parameters)
    needed, waiting = set(), [value]
    while waiting:
        number = waiting.pop()
        if number >= count and number not in needed:
            needed.add(number)
            waiting += body.steps[number - count].arguments
    places = {number: 1 + place for place, number in enumerate(sorted(needed))}
    found = [body.steps[number - count] for number in sorted(needed)]
    return tuple(
        step._replace(arguments=tuple(places.get(argument, 0) for argument in step.arguments))
        for step in found
    )


def integer_keys(device: DeviceProgram, own: SortKey, x: NkiTensor) -> NkiTensor:
    """Of a tile [rows, columns] integers of which those of the first elements are the largest."""

    def scalar(dst: NkiTensor, data: NkiTensor, *steps: tuple[str, Any]) -> NkiTensor:
        operands: dict[str, Any] = {}
        for number, (op, operand) in enumerate(steps):
            operands |= {f"op{number}": ALU[op], f"operand{number}": operand}
        device.builder.emit("tensor_scalar", dst=dst, data=data, **operands)
        return dst

    shape = x.shape
    if own.key:
        value = evaluate(own.key, [x], None, shape[0])[-1]
        x = to_sizes(as_tile(value, shape, own.type), shape)
    if kind(own.type) == "real":
        # Of halves as well: a conversion to fp32 loses the sign of NaN.
        width = PRIMITIVE_TYPES[own.type].bits
        bits = nl.copy(x.view("int16"), dtype="int32") if width == _HALF else x.view("int32")
        # Bits of negative numbers but the sign count the other way.
        mask = device.tile(shape, "int32")
        scalar(mask, bits, ("less", 0.0), ("multiply", -1.0))
        scalar(mask, mask, ("right_shift", 1 + _WORD - width))
        keys = device.tile(shape, "int32")
        device.builder.emit(
            "tensor_tensor", dst=keys, data1=bits, data2=mask, op=ALU["bitwise_xor"]
        )
    elif x.dtype == "uint32":
        keys = scalar(device.tile(shape, "int32"), x.view("int32"), ("bitwise_xor", _LEAST))
    elif own.largest:
        return x
    else:
        keys = nl.copy(x, dtype="int32")
    return keys if own.largest else scalar(keys, keys, ("bitwise_xor", -1))


def halves(device: DeviceProgram, keys: NkiTensor) -> tuple[NkiTensor, NkiTensor]:
    """32-bit integers as sums of two that fp32 has."""
    found = []
    for mask in (~_LOW, _LOW):
        found.append(device.tile(keys.shape, "int32"))
        device.builder.emit(
            "tensor_scalar", dst=found[-1], data=keys, op0=ALU["bitwise_and"], operand0=mask
        )
    high, low = found
    return high, low
