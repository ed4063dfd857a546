"""The accesses of a stretch in columns, for passes that look at all of them at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isa.columns import Flags, Integers, joined, numbered
from nki.ir.nodes import Access, Tensor

MANY = 600
"""Accesses whose steps are as quick to look at in columns as one by one (measured with `tiled` and
`blocked` of the tutorials, 7.5 ms)."""


class Accesses:
    """Accesses in columns, each object once, in the order in which they come.

    `each` are the accesses, `which` the number among them of all that were given. `tensor` numbers
    their tensors, which are the keys of `tensors`, and `view` their (dtype, strides, shape), which
    are the keys of `views`. `offset` is where they begin if they are `plain`, at a place that is
    known, else 0. `many` tells whether they are so many that columns pay.
    """

    def __init__(self, accesses: Sequence[Access]) -> None:
        names = np.fromiter(map(id, accesses), np.int64, len(accesses))
        self._names, first, which = np.unique(names, return_index=True, return_inverse=True)
        order = np.argsort(first)
        self._rank = np.empty_like(order)
        self._rank[order] = np.arange(order.size)
        self.which = self._rank[which]
        self.many = len(accesses) >= MANY
        self.each = [accesses[at] for at in first[order].tolist()]
        self.tensors, self.tensor = numbered([access.storage for access in self.each])
        views = [(access.dtype, access.strides, access.shape) for access in self.each]
        self.views, self.view = numbered(views)
        plain = [type(a.offset) is int and a.vector_offset is None for a in self.each]
        self.plain: Flags = np.array(plain, np.bool_)
        offsets = [a.offset if known else 0 for a, known in zip(self.each, plain)]
        self.offset = np.array(offsets, np.int64)

    def numbers(self, names: Integers) -> Integers:
        """The numbers of objects of which one knows the identity; -1 for what is none of them."""
        at = np.searchsorted(self._names[:-1], names)
        return np.where(self._names[at] == names, self._rank[at], -1)

    def alike(self, wanted: Integers) -> tuple[list[Access], Integers]:
        """Of some accesses those that differ, but for their tensors: one of each kind, and for each
        of the wanted the number of its kind. They are alike if they are plain and lie alike within
        tensors that are alike."""
        _, kind = numbered([_kind(tensor) for tensor in self.tensors])
        plain = self.plain[wanted]
        key = joined(
            [
                np.where(plain, 0, 1 + np.arange(wanted.size)),
                self.view[wanted],
                kind[self.tensor[wanted]],
                self.offset[wanted] - self.offset.min(initial=0),
            ]
        )
        _, first, which = np.unique(key, return_index=True, return_inverse=True)
        return [self.each[at] for at in wanted[first].tolist()], which


def _kind(tensor: Tensor) -> tuple[object, ...]:
    return tensor.memory, tensor.dtype, tensor.shape
