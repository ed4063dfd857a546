"""The check that what a program keeps in HBM fits into the memory that its cores reach."""

from __future__ import annotations

from math import prod
from typing import Any

from isa.dtypes import DTYPES
from isa.errors import NeuronError
from isa.program import Program, TensorDeclaration
from isa.target import TARGETS

_CATEGORIES = {
    "input": "arguments",
    "inout": "arguments",
    "output": "results",
    "constant": "constants",
    "internal": "internal tensors",
}
_LISTED = 5
"""The largest tensors that a message names."""


def check_hbm(program: Program) -> None:
    """Raise NeuronError hbm-overflow where the tensors of a program are larger than the stack of
    HBM that its cores share (SDK about-neuron/arch/neuron-features/
    logical-neuroncore-config.rst). Sizes over launch symbols count once they are known.
    """
    target = TARGETS[program.target]
    room = target.hbm_bytes_per_device.value // target.hbm_stacks_per_device.value
    sizes = [_bytes(tensor) for tensor in program.tensors]
    total = sum(sizes)
    if total <= room:
        return
    largest = sorted(zip(sizes, program.tensors), key=lambda item: -item[0])[:_LISTED]
    of_category: dict[str, int] = {}
    of_core: dict[int | None, int] = {}
    for size, tensor in zip(sizes, program.tensors):
        category = _CATEGORIES[tensor.role]
        of_category[category] = of_category.get(category, 0) + size
        of_core[tensor.core] = of_core.get(tensor.core, 0) + size
    owners = [
        f"{size:,} B  {'shared' if core is None else f'of core {core}'}"
        for core, size in of_core.items()
    ]
    raise NeuronError(
        "hbm-overflow",
        f"{program.name} has {total:,} B in HBM; a stack of {target.name} has {room:,} B",
        location=_location(program, largest[0][1]),
        notes=(
            *(f"{size:,} B  {category}" for category, size in of_category.items()),
            *(owners if len(owners) > 1 else ()),
            *(_line(program, size, tensor) for size, tensor in largest if size),
        ),
    )


def _bytes(tensor: TensorDeclaration) -> int:
    if tensor.within is not None or any(type(count) is not int for count in tensor.shape):
        return 0
    return prod(tensor.shape) * DTYPES[tensor.dtype].size


def _location(program: Program, tensor: TensorDeclaration) -> Any:
    place = program.locations[tensor.location] if program.locations else None
    return place if place is not None and place.line else None


def _line(program: Program, size: int, tensor: TensorDeclaration) -> str:
    place = _location(program, tensor)
    where = f"  {place.file}:{place.line}" if place is not None else ""
    return f"{size:,} B  {tensor.name} {tensor.dtype}{list(tensor.shape)}{where}"
