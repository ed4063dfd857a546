"""Tensors that lie over each other by their author's addresses, which nothing may use together."""

from __future__ import annotations

from isa.errors import NeuronError
from nki.ir.locations import resolve
from nki.ir.nodes import Tensor


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
        for other in [other for other in list(self._current) if share_bytes(tensor, other)]:
            del self._current[other]
            self._displaced[other] = tensor
        self._current[tensor] = None

    def forget(self, tensor: Tensor) -> None:
        """No access to a tensor comes any more."""
        self._current.pop(tensor, None)
        self._displaced.pop(tensor, None)


def share_bytes(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors with addresses share bytes of one core's memory."""
    assert one.address is not None and other.address is not None
    (p0, b0), (p1, b1) = one.address, other.address
    return (
        one.memory is other.memory
        and one.core == other.core
        and p0 < p1 + other.shape[0]
        and p1 < p0 + one.shape[0]
        and b0 < b1 + other.row_bytes
        and b1 < b0 + one.row_bytes
    )
