"""What a view of a tensor is: its name, memory, size, and how its elements lie."""

from __future__ import annotations

import math
from typing import Any

from isa.enums import Memory
from nki.ir.views import layout
from nki.ir.views.shape_views import ShapeViews


class ViewAttributes(ShapeViews):
    """The attributes of `NkiTensor`."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name given to `nl.ndarray`, or that of the variable it was assigned to."""
        return self.storage.name

    @property
    def buffer(self) -> Memory:
        """The memory: `nl.sbuf`, `nl.psum`, `nl.private_hbm` or `nl.shared_hbm`."""
        return self.storage.memory

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> Any:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def on_chip(self) -> bool:
        """Whether the storage is in SBUF or PSUM."""
        return self.storage.memory.on_chip

    def is_contiguous(self) -> bool:
        """Whether elements lie densely in row-major order; on chip, within each partition.

        >>> import numpy as np, nki
        >>> @nki.jit
        ... def kernel(a):
        ...     print(a.is_contiguous(), a[:, 0:2].is_contiguous())
        >>> kernel(np.zeros((2, 4), np.float32))
        True False
        """
        if self.on_chip:
            return layout.is_dense(self.shape[1:], self.strides[1:])
        return layout.is_dense(self.shape, self.strides)

    def is_indirect(self) -> bool:
        """Whether a run-time index moves the view.

        >>> import numpy as np, nki, nki.language as nl
        >>> @nki.jit
        ... def kernel(a):
        ...     row = a.select(0, nl.full((1, 1), 1, dtype=nl.int32))
        ...     print(a.is_indirect(), row.is_indirect())
        >>> kernel(np.zeros((2, 4), np.float32))
        False True
        """
        return self.indirect_dim is not None

    def get_pattern(self) -> list[list[Any]]:
        """[[stride, count], ...], one pair a dimension: what `ap` takes.

        >>> import numpy as np, nki
        >>> @nki.jit
        ... def kernel(a):
        ...     print(a[:, 0:4:2].get_pattern())
        >>> kernel(np.zeros((2, 4), np.float32))
        [[4, 2], [2, 2]]
        """
        return [list(pair) for pair in zip(self.strides, self.shape)]
