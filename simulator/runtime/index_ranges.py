"""Indices that the caller of a graph gives, as of rows of an embedding, and the rows there are.

A device goes on with an index outside, and its run ends with a status that says so (SDK
neuron-runtime/nrt-troubleshoot.rst, "out-of-bound access"). A graph's container has its index
ranges beside the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from isa.errors import NeuronError

KEY = "index_ranges"
"""Where a container's metadata has them."""


class IndexRange(NamedTuple):
    """An `input`, by its place among a program's parameters, all of whose numbers are indices from
    0 to `last`. `dtype`: what its bytes are as NumPy says it, where the device has wide integers as
    halves. `name`: what looks them up."""

    input: int
    last: int
    dtype: str
    name: str

    def complaint(self, values: Any) -> str | None:
        """What is wrong with the indices that are given.

        >>> IndexRange(0, 9, "<i4", "gather").complaint(np.array([3, 12, -1], np.int32))
        'gather: 2 of 3 indices are outside of 0 to 9, the first of them 12'
        """
        indices = np.ascontiguousarray(values).reshape(-1).view(self.dtype)
        if not indices.size or (indices.min() >= 0 and indices.max() <= self.last):
            return None
        outside = indices[(indices < 0) | (indices > self.last)]
        return (
            f"{self.name}: {outside.size} of {indices.size} indices are outside of 0 to "
            f"{self.last}, the first of them {outside[0]}"
        )


def complaints(ranges: Iterable[IndexRange], inputs: Sequence[Any]) -> list[str]:
    """What is wrong with the indices among a program's inputs."""
    found = (one.complaint(inputs[one.input]) for one in ranges)
    return [complaint for complaint in found if complaint is not None]


def index_ranges(metadata: Any, parameters: int) -> list[IndexRange]:
    """Those of a container's metadata. Raises NeuronError container-corrupt."""
    try:
        found = [IndexRange(*one) for one in metadata.get(KEY, ())]
        for one in found:
            integral = np.dtype(one.dtype).kind in "iu"
            if not (integral and 0 <= one.input < parameters and one.last >= 0 and one.name + ""):
                raise ValueError(f"{one} is no range of indices")
    except (TypeError, ValueError) as error:
        raise NeuronError("container-corrupt", f"its ranges of indices: {error}") from error
    return found
