"""A hint for errors about uninitialised data: tensors that overlap by their addresses.

Tensors are separate, whatever addresses their author gives them: what one holds is not read from
another at the same place. The passes move an operation past another when they share no tensor, so
there would be no order between the write of one and the read of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from isa.errors import NeuronError
from nki.errors import annotate
from nki.ir.checks.addresses_in_use import share_bytes
from nki.ir.locations import resolve
from nki.ir.nodes import TracedKernel, operations, tensors_of

_CODE = "uninitialised-output"


def name_overlaps(error: NeuronError, traced: Callable[[], TracedKernel]) -> None:
    """Let an error that something uninitialised was read name the tensors that share bytes with it
    by `address=`. `traced` gives the tile IR of what ran."""
    if error.code == _CODE and (found := tuple(_overlaps(error, traced()))):
        annotate(error)
        error.notes += found
        error.add_note("\n".join(f"   note: {text}" for text in found))


def _overlaps(error: NeuronError, kernel: TracedKernel) -> Iterator[str]:
    placed = [tensor for tensor in kernel.tensors if tensor.address is not None]
    if not placed or error.location is None:
        return
    read = {
        tensor: None
        for body in kernel.bodies
        for op in operations(body)
        if resolve(op.location) == error.location
        for tensor in tensors_of(op)
    }
    for tensor in placed:
        for other in placed:
            if tensor in read and tensor is not other and share_bytes(tensor, other):
                yield (
                    f"{tensor.name} at address={tensor.address} shares bytes with {other.name} at "
                    f"address={other.address}, and does not hold what is written to it: read "
                    f"{other.name}, or a view of it."
                )
