"""Tensors that lie over each other by their author's addresses, which nothing may use together."""

from __future__ import annotations

import sys

from isa.affine import bounds
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
    """Whether their author has placed two tensors so that bytes of them may be the same."""
    if one.memory is not other.memory or one.core != other.core:
        return False
    if one.address is None or other.address is None:
        return False
    for axis in (0, 1):
        (first, size), (second, extent) = _extent(one, axis), _extent(other, axis)
        if first >= second + extent or second >= first + size:
            return False
    return True


def _extent(tensor: Tensor, axis: int) -> tuple[int, int]:
    """Where a placed tensor begins, and its size: in partitions (0), or in bytes of each (1)."""
    assert tensor.address is not None
    size = tensor.row_bytes if axis else tensor.shape[0]
    if type(size) is not int:
        most = bounds(size)[1]
        size = sys.maxsize if most is None else most
    return tensor.address[axis], size
