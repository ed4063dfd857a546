"""`tensor[key] = value`: a copy, or a constant for elements on chip."""

from __future__ import annotations

from typing import Any

from isa.errors import NeuronError
from isa.operations.dma import DmaCopy
from isa.operations.vector import Memset, TensorCopy
from isa.rules.form import is_number
from nki.ir.builder.emission import emit
from nki.ir.context import Context, Location
from nki.ir.views.tensor import NkiTensor


def assign(context: Context, dst: NkiTensor, value: Any, location: Location) -> None:
    """What `nisa.tensor_copy` does on chip, `nisa.dma_copy` from and to HBM, `nisa.memset` with a
    number. The data type of `dst` decides.

    Raises not-supported for other values.
    """
    if isinstance(value, NkiTensor):
        row = TensorCopy if dst.on_chip and value.on_chip else DmaCopy
        emit(context, row, {"dst": dst, "src": value}, location)
    elif dst.on_chip and is_number(value):
        emit(context, Memset, {"dst": dst, "value": value}, location)
    else:
        raise NeuronError(
            "not-supported",
            what=f"{type(value).__name__} assigned to elements of {dst.name!r} in "
            f"{dst.buffer.name}",
            why="Elements take those of another tensor, and on chip a number.",
            hint="Make a tensor of the value on chip first, with nl.full or nl.shared_constant.",
        )
