"""Tensors that lie over each other by their author's addresses: which a run may not use together,
and what an error about uninitialised data says of them.

Tensors are separate, whatever addresses their author gives them: what one holds is not read from
another at the same place. The passes move an operation past another when they share no tensor, so
there would be no order between the write of one and the read of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from isa.errors import NeuronError
from nki.errors import annotate
from nki.ir.locations import resolve
from nki.ir.nodes import Kernel, Tensor, operations, storages
from nki.passes.place.pressure import size_of

_CODE = "uninitialised-output"


def name_overlaps(error: NeuronError, traced: Callable[[], Kernel]) -> None:
    """Let an error that something uninitialised was read name the tensors that share bytes with it
    by `address=`. `traced` gives the tile IR of what ran."""
    if error.code == _CODE and (found := tuple(_overlaps(error, traced()))):
        annotate(error)
        error.notes += found
        error.add_note("\n".join(f"   note: {text}" for text in found))


def _overlaps(error: NeuronError, kernel: Kernel) -> Iterator[str]:
    placed = [tensor for tensor in kernel.tensors if tensor.address is not None]
    if not placed or error.location is None:
        return
    read = {
        tensor: None
        for body in kernel.bodies
        for op in operations(body)
        if resolve(op.location) == error.location
        for tensor in storages(op.values)
    }
    for tensor in placed:
        for other in placed:
            if tensor in read and tensor is not other and _share(tensor, other):
                yield (
                    f"{tensor.name} at address={tensor.address} shares bytes with {other.name} at "
                    f"address={other.address}, and does not hold what is written to it: read "
                    f"{other.name}, or a view of it."
                )


class AddressesInUse:
    """Follows what a core accesses while it runs, to tell, as the allocation does
    (`nki.passes.place.allocate`), of tensors with addresses that share bytes while both are in use.
    """

    def __init__(self) -> None:
        self._current: dict[Tensor, None] = {}
        self._displaced: dict[Tensor, Tensor] = {}

    def access(self, tensor: Tensor) -> None:
        """The next access. Raises address-overlap for one to a tensor whose bytes another one has
        been given since."""
        if tensor in self._current:
            return
        later = self._displaced.get(tensor)
        if later is not None:
            raise NeuronError(
                "address-overlap",
                f"{tensor.name} at {tensor.address} and {later.name} at {later.address} share "
                f"bytes of {tensor.memory.value} while both are in use",
                location=resolve(later.location),
            )
        for other in [other for other in self._current if _share(tensor, other)]:
            del self._current[other]
            self._displaced[other] = tensor
        self._current[tensor] = None


def _share(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors with addresses share bytes of one core's memory."""
    assert one.address is not None and other.address is not None
    (p0, b0), (p1, b1) = one.address, other.address
    return (
        one.memory is other.memory
        and one.core == other.core
        and p0 < p1 + other.shape[0]
        and p1 < p0 + one.shape[0]
        and b0 < b1 + size_of(other)
        and b1 < b0 + size_of(one)
    )


__all__ = ["AddressesInUse", "name_overlaps"]
