"""The HBM tensors of a loaded program: their memory, what goes in, what comes out.

Large tensors are not copied where native code can do without: an argument that the program only
reads stays where it is, and the memory of a result is given away. Its next run uses other memory,
or the same if nobody holds the result any more. Everything that knows an address is told. Constants
are read where the program has them; one that writes to them is refused.

A tensor within another one is a view of its memory, and stays there: an argument is copied to it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isa.access import AccessPattern
from isa.dtypes import DTYPES
from isa.errors import NeuronError
from isa.program import Program, TensorDeclaration
from isa.spec import Instruction
from simulator.device_state import Device
from simulator.memory import bytes_at_line
from simulator.oracle import fill_sentinel
from simulator.views import Array, Windows, strided

if TYPE_CHECKING:
    from simulator.checks.initialised import Shadow
    from simulator.checks.marks import Space
    from simulator.native.loop.program import NativeProgram
    from simulator.prepare import Preparation


LARGE = 1 << 16
"""Bytes from which on moving a tensor's address costs less than copying the tensor."""


class Tensors:
    """The tensors of `program`, allocated on `device`, which `shadow` mirrors. Of slices that run
    at the same time all but the first have those of `other`; their marks are their own."""

    def __init__(
        self,
        program: Program,
        device: Device,
        shadow: Shadow | None,
        other: Tensors | None = None,
    ) -> None:
        self._program = program
        self._device = device
        self._shadow = shadow
        self._shared = other is not None
        if other is None:
            device.tensors = _buffers(program.tensors)
        else:
            device.tensors = list(other._device.tensors)
            other._shared = True
        parts = {index: t.within for index, t in enumerate(program.tensors) if t.within is not None}
        self._parts = parts
        self._roots = [index for index in range(len(program.tensors)) if index not in parts]
        if shadow is not None:
            for index in self._roots:
                shadow.add(device.tensors[index])
        self._native: NativeProgram | None = None
        self._windows: Sequence[Windows] = ()
        self._written: set[int] = set()
        self._moving: set[int] = set()
        self._given_away: dict[int, weakref.ref[Array]] = {}
        self._fills: dict[int, int] = {}

    def prepare(
        self,
        preparations: Sequence[Preparation],
        windows: Sequence[Windows],
        native: NativeProgram | None,
    ) -> None:
        """All instructions are prepared: find out how they use the tensors. The marks of each get
        the coarsest unit that suits all accesses."""
        self._native = native
        self._windows = windows
        fixed = set()
        for preparation in preparations:
            computes = None if native is None else native.computes(preparation)
            uses = preparation.uses
            for key, template in enumerate(uses.templates):
                used = _tensors_of(template)
                if used and (computes is None or not computes[uses.places[key]].all()):
                    fixed |= used
                self._written |= _tensors_of(template, template.row.writes)
                if used and self._shadow is not None:
                    self._coarsen(preparation, key)
        self._refuse_written_constants()
        self._moving = {
            index
            for index, buffer in enumerate(self._device.tensors)
            if index not in fixed and buffer.size >= LARGE
        }
        self._moving -= {*self._parts, *self._parts.values()}
        if self._shadow is not None:
            for index in self._parts:
                first, size = self._place(index)
                self._space(index).coarsen(first, 1, (size,), (1,))
            for index in self._roots:
                self._space(index).adopt()

    def _refuse_written_constants(self) -> None:
        for index in sorted(self._parts.get(index, index) for index in self._written):
            tensor = self._program.tensors[index]
            if tensor.data is not None:
                raise NeuronError("program-malformed", f"it writes to its constant {tensor.name!r}")

    def _coarsen(self, preparation: Preparation, key: int) -> None:
        """The marks of tensors get a unit that suits the uses of a template too."""
        assert self._shadow is not None
        uses = preparation.uses
        instruction = uses.instruction(key, 0)
        for position, value in enumerate(instruction.values):
            if not isinstance(value, AccessPattern):
                continue
            window = preparation.window(instruction, value)
            offset: int = window.offset
            if position in uses.moving[key]:
                column = uses.moving[key].index(position)
                offset = int(np.gcd.reduce(uses.offsets(key)[:, column]))
            at = [(window, offset)]
            if window.index is not None:
                at.append((window.index, window.index.offset))
            for each, where in at:
                if each.on_chip:
                    continue
                scales = [scale for _, scale in each.registers]
                space = self._shadow.spaces[each.buffer]
                space.coarsen(where, each.dtype.itemsize, each.shape, each.strides, scales)

    # Runs

    def start(self, inputs: Sequence[Array]) -> None:
        """As a run finds them: parameters hold the arguments, other tensors nothing.

        Raises NeuronError input-mismatch.
        """
        program = self._program
        if len(inputs) != len(program.parameters):
            raise NeuronError(
                "input-mismatch",
                f"{program.name} takes {len(program.parameters)} tensors, not {len(inputs)}.",
            )
        given = {}
        for index, name, array in zip(program.parameters, program.parameter_names, inputs):
            given[index] = _input_bytes(program.tensors[index], name, array)
        for index in self._roots:
            tensor = program.tensors[index]
            if index in given:
                if index in self._moving and index not in self._written:
                    self._move(index, given[index])
                else:
                    self._device.tensors[index][...] = given[index]
            elif tensor.data is None:
                self._take_back(index)
                if self._shadow is None:
                    fill_sentinel(self._view(index))
            if self._shadow is not None:
                self._mark(index, index in given or tensor.data is not None)
        for index in self._parts.keys() & given.keys():
            self._device.tensors[index][...] = given[index]
            if self._shadow is not None:
                self._space(index).initialise(*self._place(index))

    def follow(self, other: Tensors) -> None:
        """The tensors are those of another slice, which has started."""
        parameters = {*self._program.parameters}
        for index, buffer in enumerate(other._device.tensors):
            if self._device.tensors[index] is not buffer:
                self._move(index, buffer)
            if self._shadow is not None:
                known = index in parameters or self._program.tensors[index].data is not None
                self._mark(index, known)

    def stay_with(self, other: Tensors) -> None:
        """Move no tensor that another slice cannot follow."""
        self._moving &= other._moving

    def _mark(self, index: int, initialised: bool) -> None:
        assert self._shadow is not None
        space = self._shadow.spaces[self._device.tensors[index]]
        space.reset(initialised)
        if initialised or space.whole is None or self._shared:
            # What slices write in parts nobody reads.
            return
        # It gets its sentinel when something may see it.
        states = self._shadow.states
        if index not in self._fills:
            self._fills[index] = states.view(self._view(index))
        states.views[self._fills[index]] = self._view(index)
        states.fills[space.whole.number] = self._fills[index]

    def _place(self, index: int) -> tuple[int, int]:
        """First byte and bytes of a tensor within another one."""
        return self._program.tensors[index].offset, self._device.tensors[index].size

    def _space(self, index: int) -> Space:
        """The marks of a tensor, or of the one that it is within."""
        assert self._shadow is not None
        return self._shadow.spaces[self._device.tensors[self._parts.get(index, index)]]

    def check(self, index: int, locate: Callable[[Any], Any]) -> None:
        """Raise NeuronError unless every element of a result is initialised, as of
        `Shadow.check_output`; without reports, what was never written gets its sentinel."""
        assert self._shadow is not None
        tensor = self._program.tensors[index]
        within = self._parts.get(index)
        buffer = self._device.tensors[index if within is None else within]
        if not self._shadow.reports:
            self._shadow.complete(buffer)
            return
        part = None if within is None else self._place(index)
        size = DTYPES[tensor.dtype].size
        made = tensor.location
        self._shadow.check_output(buffer, tensor.name, size, locate, made, part)

    def _take_back(self, index: int) -> None:
        """Other memory for a tensor whose memory somebody still holds as a result."""
        holder = self._given_away.pop(index, None)
        if holder is not None and holder() is not None:
            self._move(index, bytes_at_line(self._device.tensors[index].size))

    def _move(self, index: int, buffer: Array) -> None:
        """The tensor is in other memory from now on."""
        old = self._device.tensors[index]
        self._device.tensors[index] = buffer
        for windows in self._windows:
            windows.move(index, buffer)
        if self._shadow is not None:
            self._shadow.move(old, buffer)
        if self._native is not None:
            self._native.move(old, buffer)

    def result(self, index: int) -> Array:
        """What a run left in a tensor, in its plain NumPy dtype: memory that is the caller's."""
        tensor = self._program.tensors[index]
        buffer = self._device.tensors[index]
        if self._may_give_away(index):
            # All views that come of it hold `given`, as what it looks at is no array.
            given = np.frombuffer(buffer.data, np.uint8)
            self._given_away[index] = weakref.ref(given)
        else:
            given = buffer.copy()
        return given.view(DTYPES[tensor.dtype].numpy).reshape(tensor.shape)

    def _may_give_away(self, index: int) -> bool:
        return (
            index in self._moving
            and index not in self._given_away
            and index not in self._program.parameters
            and self._program.tensors[index].data is None
        )

    def after(self, index: int, given: Array) -> Array:
        """What a run left in a parameter, for which `given` was the argument."""
        return self.result(index) if index in self._written else np.asarray(given)

    def _view(self, index: int) -> Array:
        """A tensor's elements as the simulator's views have them."""
        tensor = self._program.tensors[index]
        strides = []
        step = DTYPES[tensor.dtype].size
        for count in reversed(tensor.shape):
            strides.append(step)
            step *= max(count, 1)
        buffer = self._device.tensors[index]
        return strided(buffer, tensor.dtype, 0, tensor.shape, tuple(reversed(strides)))


def _tensors_of(template: Instruction, positions: Sequence[int] | None = None) -> set[int]:
    """The tensors that operands look at, themselves or for their indices: all, or some of them."""
    row, found = template.row, set()
    for position in [p for p, _, _ in row.operands] if positions is None else positions:
        pattern = template.values[position]
        while isinstance(pattern, AccessPattern):
            if not pattern.memory.on_chip:
                found.add(pattern.tensor)
            pattern = pattern.vector_offset
    return found


def _buffers(tensors: Sequence[TensorDeclaration]) -> list[Array]:
    """The memory of each tensor. Raises NeuronError out-of-bounds for one that leaves the other
    that it is within."""
    buffers = [_buffer(tensor) if tensor.within is None else _NOTHING for tensor in tensors]
    for index, tensor in enumerate(tensors):
        if tensor.within is None:
            continue
        outer, size = buffers[tensor.within], size_of(tensor)
        if tensor.offset < 0 or tensor.offset + size > outer.size:
            raise NeuronError(
                "out-of-bounds",
                f"{tensor.name!r}, {size} bytes from byte {tensor.offset} on, leaves "
                f"{tensors[tensor.within].name!r} of {outer.size} bytes.",
            )
        buffers[index] = outer[tensor.offset : tensor.offset + size]
    return buffers


_NOTHING: Array = np.zeros(0, np.uint8)


def size_of(tensor: TensorDeclaration) -> int:
    """The bytes of a tensor of a bound program."""
    size = DTYPES[tensor.dtype].size
    for count in tensor.shape:
        size *= count
    return size


def _buffer(tensor: TensorDeclaration) -> Array:
    size = size_of(tensor)
    if tensor.data is None:
        return bytes_at_line(size, zero=True)
    data = np.frombuffer(tensor.data, np.uint8)
    if data.size != size:
        raise NeuronError(
            "input-mismatch",
            f"Constant {tensor.name} of {size} bytes comes with {data.size} bytes of data.",
        )
    return data


def _input_bytes(tensor: TensorDeclaration, name: str, array: Array) -> Array:
    """The bytes of an argument; raises NeuronError input-mismatch."""
    array = np.asarray(array)
    wanted = DTYPES[tensor.dtype].numpy
    if tuple(array.shape) != tuple(tensor.shape) or array.dtype.newbyteorder("=") != wanted:
        raise NeuronError(
            "input-mismatch",
            f"Parameter {name} is {tensor.dtype}{list(tensor.shape)}; "
            f"the argument is {array.dtype.name}{list(array.shape)}.",
        )
    # Bytes in the other order are turned.
    return np.ascontiguousarray(array, wanted).reshape(-1).view(np.uint8)
