"""Which elements of a sort come first, as tiles: by keys that fp32 has, or by any comparator.

Positions travel with the elements, and decide between equal ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nki.language as nl
from graph_compiler.host_kernels.bodies import SortKernel
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.movement.payloads import Payload
from graph_compiler.lower.movement.sort_keys import SortKey, halves, integer_keys
from graph_compiler.lower.nests.evaluation import evaluate
from graph_compiler.lower.sizes import FP32_INTEGERS
from isa.alu import ALU
from nki.ir.views.tensor import NkiTensor

_BEYOND = float(1 << 33)
"""More than any key."""

Flip = NkiTensor | None
"""What is 1 where the later one of two goes in front: of the shape of pairs, or a column."""


class KeyOrder:
    """The order of one input. The arrays of a sort are its keys, what it carries, and positions."""

    def __init__(self, device: DeviceProgram, sort: SortKernel, key: SortKey) -> None:
        self.device, self.sort, self.key = device, sort, key
        self.keys = 2 if key.is_wide else 1
        self.operations = 2 * self.keys + 2
        """Those that compare all pairs."""

    def arrays(self, inputs: Sequence[NkiTensor], positions: NkiTensor) -> list[NkiTensor]:
        """What decides, beside what is carried. What fills rows up has keys beyond all others."""
        device, sort = self.device, self.sort
        keys = integer_keys(device, self.key, inputs[0])
        parts = halves(device, keys) if self.key.is_wide else (keys,)
        first, *others = (nl.copy(part, dtype="float32") for part in parts)
        filled = device.tile(positions.shape, "float32")
        device.builder.emit(
            "tensor_scalar",
            dst=filled,
            data=positions,
            op0=ALU["greater_equal"],
            operand0=float(sort.counts[-1]),
            op1=ALU["multiply"],
            operand1=_BEYOND,
        )
        self._both(first, first, "subtract", filled)
        return [first, *others]

    def _both(self, dst: NkiTensor, left: NkiTensor, op: str, right: NkiTensor) -> None:
        self.device.builder.emit("tensor_tensor", dst=dst, data1=left, data2=right, op=ALU[op])

    def before(
        self, left: Sequence[NkiTensor], right: Sequence[NkiTensor], flip: Flip
    ) -> NkiTensor:
        """Whether elements of `left` stay in front of those of `right`.

        Keys differ by 1 at least where they differ, and positions, scaled, by less than 1. So the
        sign of the sum of differences is that of the first one which is not 0, however it is
        rounded."""
        device, shape = self.device, left[0].shape
        total, part = (device.tile(shape, "float32") for _ in range(2))
        self._both(total, right[0], "subtract", left[0])
        for a, b in zip(left[1 : self.keys], right[1 : self.keys]):
            self._both(part, b, "subtract", a)
            self._both(total, total, "add", part)
        self._both(part, left[-1], "subtract", right[-1])
        keep = device.tile(shape, "uint8")
        scaled: dict[str, Any] = {"op0": ALU["multiply"], "data": part, "operand1": total}
        emit = device.builder.emit
        if flip is None:
            scale = -1.0 / FP32_INTEGERS
            emit("scalar_tensor_tensor", dst=keep, operand0=scale, op1=ALU["greater"], **scaled)
            return keep
        scale = 1.0 / FP32_INTEGERS
        emit("scalar_tensor_tensor", dst=total, operand0=scale, op1=ALU["add"], **scaled)
        _flipped(device, keep, total, "less", flip)
        return keep


class AnyOrder:
    """The order of a comparator. What fills rows up comes last."""

    def __init__(
        self, device: DeviceProgram, sort: SortKernel, payloads: Sequence[Payload], filled: bool
    ) -> None:
        self.device, self.sort, self.payloads, self.filled = device, sort, payloads, filled
        used = {argument for step in sort.body.steps for argument in step.arguments}
        used.update(sort.body.results)
        self.compared = [n for n in range(len(sort.inputs)) if {2 * n, 2 * n + 1} & used]
        self.keys = 0
        each = 2 * sum(step.op != "literal" for step in sort.body.steps)
        self.operations = 2 * each + 2 * len(self.compared) + (9 if filled else 5)

    def arrays(self, inputs: Sequence[NkiTensor], positions: NkiTensor) -> list[NkiTensor]:
        """What decides is carried in any case."""
        return []

    def before(
        self, left: Sequence[NkiTensor], right: Sequence[NkiTensor], flip: Flip
    ) -> NkiTensor:
        """Whether elements of `left` stay in front of those of `right`."""
        here, there = left[-1], right[-1]
        one, other = self._elements(left), self._elements(right)
        less, more = self._compared(one, other), self._compared(other, one)
        earlier = nl.less(here, there, dtype="uint8")
        equal = nl.bitwise_xor(more, 1)
        found = nl.bitwise_or(less, nl.bitwise_and(equal, earlier))
        if self.filled:
            count = float(self.sort.counts[-1])
            inside = nl.less(here, count, dtype="uint8")
            outside = nl.greater_equal(there, count, dtype="uint8")
            found = nl.bitwise_or(nl.bitwise_and(inside, outside), nl.bitwise_and(found, inside))
        if flip is None:
            return found
        keep = self.device.tile(found.shape, "uint8")
        _flipped(self.device, keep, found, "not_equal", flip)
        return keep

    def _elements(self, arrays: Sequence[NkiTensor]) -> list[NkiTensor | None]:
        """What is compared of the inputs."""
        found: list[NkiTensor | None] = []
        first = 0
        for number, payload in enumerate(self.payloads):
            parts = arrays[first : first + payload.parts]
            first += payload.parts
            found.append(payload.decoded(parts) if number in self.compared else None)
        return found

    def _compared(
        self, left: Sequence[NkiTensor | None], right: Sequence[NkiTensor | None]
    ) -> NkiTensor:
        body = self.sort.body
        arguments: list[Any] = [tile for pair in zip(left, right) for tile in pair]
        values = evaluate(body.steps, arguments[: len(body.parameters)])
        value = values[body.results[0]]
        assert isinstance(value, NkiTensor)
        return value


def _flipped(
    device: DeviceProgram, dst: NkiTensor, data: NkiTensor, op: str, flip: NkiTensor
) -> None:
    """Whether `data op 0`, or its opposite where `flip` is 1."""
    operands: dict[str, Any] = {"op0": ALU[op], "operand0": 0.0, "op1": ALU["not_equal"]}
    if len(flip.shape) == 2:
        device.builder.emit("tensor_scalar", dst=dst, data=data, operand1=flip, **operands)
        return
    _, blocks, halves_, columns = flip.shape
    pattern = [[dst.strides[0], dst.shape[0]], [halves_ * columns, blocks], [columns, halves_]]
    pattern.append([1, columns])
    one, other = dst.ap(pattern, 0), data.ap(pattern, 0)
    device.builder.emit("scalar_tensor_tensor", dst=one, data=other, operand1=flip, **operands)
