"""The check that what a kernel keeps in HBM fits into the memory that its cores reach."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from isa.dtypes import DTYPES
from isa.errors import NeuronError
from isa.program import Program, TensorDeclaration
from isa.target import TARGETS, Target
from nki.ir.locations import resolve
from nki.ir.nodes import Tensor

if TYPE_CHECKING:
    from nki.ir.open_loops import Iteration

_CATEGORIES = {
    "input": "arguments",
    "inout": "arguments",
    "output": "results",
    "constant": "constants",
    "internal": "internal tensors",
    "local": "results and internal tensors",
}
_LISTED = 5
"""The largest tensors that a message names."""


class _Held(NamedTuple):
    """A tensor in HBM. `core`: None where all share it; `place`: its line, if it has one."""

    size: int
    name: str
    category: str
    core: int | None
    place: Any

    def line(self) -> str:
        where = f"  {self.place.file}:{self.place.line}" if self.place is not None else ""
        return f"{self.size:,} B  {self.name}{where}"


def room_of(target: Target) -> int:
    """Bytes of the stack of HBM that cores share (SDK about-neuron/arch/neuron-features/
    logical-neuroncore-config.rst)."""
    return int(target.hbm_bytes_per_device.value // target.hbm_stacks_per_device.value)


def check_hbm(program: Program) -> None:
    """Raise NeuronError hbm-overflow where the tensors of a program are larger than the stack of
    HBM that its cores share. Sizes over launch symbols count once they are known.
    """
    target = TARGETS[program.target]
    if sum(map(_bytes, program.tensors)) > room_of(target):
        raise _overflow(program.name, target, (_declared(program, t) for t in program.tensors))


def fits_into_hbm(tensors: Iterable[Tensor], target: Target) -> bool:
    """Whether the tensors of a kernel find room in one stack."""
    return sum(_bytes(one) for one in tensors if not one.memory.on_chip) <= room_of(target)


class HbmInUse:
    """What the tensors of an eager run take in HBM: all that were made, as compiled programs keep
    them, but those of iterations on the device that are over."""

    def __init__(self, name: str, target: Target) -> None:
        self._name = name
        self._target = target
        self._room = room_of(target)
        self._total = 0
        self._tensors: dict[Tensor, Iteration | None] = {}

    def add(self, tensor: Tensor, iteration: Iteration | None) -> None:
        """A tensor is about to be made, by an iteration or outside of all loops on the device.
        Raises NeuronError hbm-overflow."""
        self._tensors[tensor] = iteration
        self._total += _bytes(tensor)
        if self._total > self._room:
            for other, made_by in list(self._tensors.items()):
                if made_by is not None and made_by.over:
                    self.forget(other)
        if self._total > self._room:
            raise _overflow(self._name, self._target, map(_made, self._tensors))

    def forget(self, tensor: Tensor) -> None:
        """Nothing refers to a tensor any more."""
        if self._tensors.get(tensor) is not None:
            del self._tensors[tensor]
            self._total -= _bytes(tensor)


def _overflow(name: str, target: Target, tensors: Iterable[_Held]) -> NeuronError:
    held = sorted(tensors, key=lambda one: -one.size)
    of_category: dict[str, int] = {}
    of_core: dict[int | None, int] = {}
    for one in held:
        of_category[one.category] = of_category.get(one.category, 0) + one.size
        of_core[one.core] = of_core.get(one.core, 0) + one.size
    owners = [
        f"{size:,} B  {'shared' if core is None else f'of core {core}'}"
        for core, size in of_core.items()
    ]
    return NeuronError(
        "hbm-overflow",
        f"{name} has {sum(of_category.values()):,} B in HBM; a stack of {target.name} has "
        f"{room_of(target):,} B",
        location=held[0].place,
        notes=(
            *(f"{size:,} B  {category}" for category, size in of_category.items()),
            *(owners if len(owners) > 1 else ()),
            *(one.line() for one in held[:_LISTED] if one.size),
        ),
    )


def _bytes(tensor: TensorDeclaration | Tensor) -> int:
    if tensor.within is not None or any(type(count) is not int for count in tensor.shape):
        return 0
    return prod(tensor.shape) * DTYPES[tensor.dtype].size


def _declared(program: Program, tensor: TensorDeclaration) -> _Held:
    place = program.place(tensor.location)
    name = f"{tensor.name} {tensor.dtype}{list(tensor.shape)}"
    place = place if place is not None and place.line else None
    return _Held(_bytes(tensor), name, _CATEGORIES[tensor.role], tensor.core, place)


def _made(tensor: Tensor) -> _Held:
    name = f"{tensor.label} {tensor.dtype}{list(tensor.shape)}"
    place = resolve(tensor.location)
    return _Held(_bytes(tensor), name, _CATEGORIES[tensor.role], tensor.core, place)
