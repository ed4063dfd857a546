"""Views that change a tensor's shape: permute, broadcast, split, merge, reshape, rearrange.

Dimension 0 is fixed on chip (partitions) and in views with an index per row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self, TypeVar

from isa.affine import identical
from isa.errors import NeuronError
from nki.ir.nodes import Access, Tensor
from nki.ir.views import layout
from nki.ir.views.indexing import index_form, require

View = TypeVar("View", bound="ShapeViews")


def new_view(
    kind: type[View],
    storage: Tensor,
    dtype: str,
    shape: tuple[Any, ...],
    strides: tuple[Any, ...],
    offset: Any = 0,
    first: int = 0,
    indirect_dim: int | None = None,
    vector_offset: Access | None = None,
    vector_stride: Any = 0,
    vector_bound: Any = 0,
) -> View:
    """A view; nothing is checked. It gets its class last, which lets nobody assign attributes."""
    view: Any = _new(ShapeViews)
    view.storage = storage
    view.dtype = dtype
    view.shape = shape
    view.strides = strides
    view.offset = offset
    view.first = first
    view.indirect_dim = indirect_dim
    view.vector_offset = vector_offset
    view.vector_stride = vector_stride
    view.vector_bound = vector_bound
    view.__class__ = kind
    made: View = view
    return made


_new = object.__new__


class ShapeViews(Access):
    """The shape methods of `NkiTensor`, which documents the attributes."""

    __slots__ = ("first", "indirect_dim")

    first: int
    indirect_dim: int | None

    @property
    def address(self) -> tuple[int, int] | None:
        """The (start partition, byte offset in the partition) that `nl.ndarray` was given for the
        storage, else None: places are chosen later.

        Source: SDK nki/library/kernel-utils/allocator.rst.

        >>> import numpy as np, nki, nki.language as nl
        >>> @nki.jit
        ... def kernel(a):
        ...     tile = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.sbuf, address=(0, 64))
        ...     print(tile.address, tile[:, 1:2].address, nl.load(a).address)
        >>> kernel(np.zeros((2, 3), np.float32))
        (0, 64) (0, 64) None
        """
        return self.storage.address

    def permute(self, dims: Sequence[int]) -> Self:
        """Dimensions in another order; dimension 0 stays first on chip and for row gathers.

        >>> import numpy as np, nki
        >>> @nki.jit
        ... def kernel(a):
        ...     print(a.permute((1, 0)).shape)
        >>> kernel(np.zeros((2, 3), np.float32))
        (3, 2)
        """
        order = tuple(index_form(dim, "a dimension") for dim in dims)
        if sorted(order) != list(range(len(self.shape))):
            raise NeuronError(
                "view-not-allowed",
                what=f"{order} is no permutation of the {len(self.shape)} dimensions",
                hint="Name every dimension once.",
            )
        if order[0] != 0:
            self._keep_first("permute", order)
        indirect = self.indirect_dim
        if indirect is not None and indirect >= 0:
            indirect = order.index(indirect)
        return self._with(
            tuple(self.shape[d] for d in order),
            tuple(self.strides[d] for d in order),
            self.offset,
            self.first,
            indirect,
        )

    def broadcast(self, dim: int, size: Any) -> Self:
        """A dimension of size 1 repeated `size` times.

        >>> import numpy as np, nki
        >>> @nki.jit
        ... def kernel(a):
        ...     rows = a.broadcast(0, 4)
        ...     print(rows.shape, rows.strides)
        >>> kernel(np.zeros((1, 3), np.float32))
        (4, 3) (0, 1)
        """
        dim = self._dimension(dim)
        self._need_one("broadcast", dim)
        if dim == 0:
            self._keep_first("broadcast", dim)
        size = index_form(size, "size")
        require(size - 1, f"broadcast to size {size}")
        return self._with(
            (*self.shape[:dim], size, *self.shape[dim + 1 :]),
            (*self.strides[:dim], 0, *self.strides[dim + 1 :]),
            self.offset,
            self.first,
            self.indirect_dim,
        )

    def expand_dim(self, dim: int) -> Self:
        """A new dimension of size 1 at position `dim`.

        >>> import numpy as np, nki
        >>> @nki.jit
        ... def kernel(a):
        ...     print(a.expand_dim(1).shape)
        >>> kernel(np.zeros((2, 3), np.float32))
        (2, 1, 3)
        """
        rank = len(self.shape)
        position = index_form(dim, "the position")
        position += rank + 1 if position < 0 else 0
        if not 0 <= position <= rank:
            raise NeuronError("out-of-bounds", what=f"position {dim} in {rank} dimensions")
        if position == 0:
            self._keep_first("expand_dim", dim)
        return self._with(
            (*self.shape[:position], 1, *self.shape[position:]),
            (*self.strides[:position], 1, *self.strides[position:]),
            self.offset,
            self.first,
            self._shifted(position, 1),
        )

    def squeeze_dim(self, dim: int) -> Self:
        """Without a dimension of size 1.

        >>> import numpy as np, nki
        >>> @nki.jit
        ... def kernel(a):
        ...     print(a.squeeze_dim(1).shape)
        >>> kernel(np.zeros((2, 1, 3), np.float32))
        (2, 3)
        """
        dim = self._dimension(dim)
        self._need_one("squeeze_dim", dim)
        if dim == 0:
            self._keep_first("squeeze_dim", dim)
        return self._with(
            self.shape[:dim] + self.shape[dim + 1 :],
            self.strides[:dim] + self.strides[dim + 1 :],
            self.offset,
            self.first,
            -1 if self.indirect_dim == dim else self._shifted(dim, -1),
        )

    def reshape_dim(self, dim: int, shape: Sequence[Any]) -> Self:
        """One dimension split into several (one size may be -1).

        >>> import numpy as np, nki
        >>> @nki.jit
        ... def kernel(a):
        ...     print(a.reshape_dim(1, (-1, 4)).shape)
        >>> kernel(np.zeros((2, 12), np.float32))
        (2, 3, 4)
        """
        dim = self._dimension(dim)
        sizes = layout.infer(shape, self.shape[dim], f"dimension {dim} as")
        if len(sizes) == 1:
            return self
        if dim == 0:
            self._keep_first("reshape_dim", shape)
        if self.indirect_dim == dim:
            raise NeuronError("indirect", what=f"reshape_dim of the indirect dimension {dim}")
        return self._with(
            (*self.shape[:dim], *sizes, *self.shape[dim + 1 :]),
            (
                *self.strides[:dim],
                *layout.split(self.shape[dim], self.strides[dim], sizes),
                *self.strides[dim + 1 :],
            ),
            self.offset,
            self.first,
            self._shifted(dim + 1, len(sizes) - 1),
        )

    def flatten_dims(self, start_dim: int, end_dim: int) -> Self:
        """Dimensions start_dim to end_dim (inclusive), dense in memory, as one.

        >>> import numpy as np, nki
        >>> @nki.jit
        ... def kernel(a):
        ...     print(a.flatten_dims(1, 2).shape)
        >>> kernel(np.zeros((2, 3, 4), np.float32))
        (2, 12)
        """
        start, end = self._dimension(start_dim), self._dimension(end_dim)
        if start >= end:
            if start == end:
                return self
            raise NeuronError("reshape", what=f"flatten_dims from {start_dim} to {end_dim}")
        if start == 0:
            self._keep_first("flatten_dims", start_dim)
        if self.indirect_dim is not None and start <= self.indirect_dim <= end:
            raise NeuronError("indirect", what="flatten_dims over the indirect dimension")
        runs = layout.merge(self.shape[start : end + 1], self.strides[start : end + 1])
        if len(runs) > 1:
            raise NeuronError(
                "reshape",
                what=f"dimensions {start} to {end} of shape {list(self.shape)}, strides "
                f"{list(self.strides)}, are not dense in memory",
                hint="Flatten before permuting or slicing, or copy into a new tensor first.",
            )
        size, stride = runs[0] if runs else (1, 1)
        return self._with(
            (*self.shape[:start], size, *self.shape[end + 1 :]),
            (*self.strides[:start], stride, *self.strides[end + 1 :]),
            self.offset,
            self.first,
            self._shifted(end, start - end),
        )

    def reshape(self, shape: Sequence[Any]) -> Self:
        """The same elements in another shape (one size may be -1), without a copy.

        On chip, and for row gathers, dimension 0 keeps its size.

        >>> import numpy as np, nki
        >>> @nki.jit
        ... def kernel(a):
        ...     print(a.reshape((4, -1)).shape)
        >>> kernel(np.zeros((2, 6), np.float32))
        (4, 3)
        """
        kept = 1 if self.storage.memory.on_chip or self.vector_offset is not None else 0
        sizes = layout.infer(shape, math.prod(self.shape), "shape")
        if kept and not identical(sizes[0], self.shape[0]):
            self._keep_first("reshape", list(sizes))
        if self.indirect_dim is not None and self.indirect_dim >= kept:
            raise NeuronError(
                "indirect", what=f"reshape across the indirect dimension {self.indirect_dim}"
            )
        strides = layout.reshape(self.shape[kept:], self.strides[kept:], sizes[kept:])
        if strides is None:
            raise NeuronError(
                "reshape",
                what=f"shape {list(self.shape)} with strides {list(self.strides)} cannot be seen "
                f"as {list(sizes)} without a copy",
                hint="Reshape before permuting or slicing, or copy into a new tensor first.",
            )
        return self._with(
            sizes, self.strides[:kept] + strides, self.offset, self.first, self.indirect_dim
        )

    def rearrange(
        self,
        src_pattern: Sequence[Any],
        dst_pattern: Sequence[Any],
        fixed_sizes: dict[str, Any] | None = None,
    ) -> Self:
        """Split, reorder and merge dimensions by name: `t.rearrange(("b", ("h", "w")), ("b", "w",
        "h"), {"h": 4})` of a [128, 24] tensor is [128, 6, 4].

        >>> import numpy as np, nki
        >>> @nki.jit
        ... def kernel(a):
        ...     print(a.rearrange(("b", ("h", "w")), ("b", "w", "h"), {"h": 4}).shape)
        >>> kernel(np.zeros((128, 24), np.float32))
        (128, 6, 4)
        """
        source, target, sizes = layout.parse_groups(
            src_pattern, dst_pattern, self.shape, fixed_sizes or {}
        )
        view = self
        for dimension in reversed(range(len(source))):
            group = source[dimension]
            if not group:
                view = view.squeeze_dim(dimension)
            else:
                view = view.reshape_dim(dimension, [sizes[name] for name in group])
        names = [name for group in source for name in group]
        view = view.permute([names.index(name) for group in target for name in group])
        for position, group in enumerate(target):
            if not group:
                view = view.expand_dim(position)
            else:
                view = view.flatten_dims(position, position + len(group) - 1)
        return view

    def _with(
        self,
        shape: tuple[Any, ...],
        strides: tuple[Any, ...],
        offset: Any,
        first: int,
        indirect: int | None,
    ) -> Self:
        """A view of the same dtype, keeping row indices."""
        return new_view(
            type(self),
            self.storage,
            self.dtype,
            shape,
            strides,
            offset,
            first,
            indirect,
            self.vector_offset,
            self.vector_stride,
            self.vector_bound,
        )

    def _dimension(self, dim: Any) -> int:
        rank = len(self.shape)
        position = index_form(dim, "the dimension")
        if isinstance(position, int) and position < 0:
            position += rank
        if not isinstance(position, int) or not 0 <= position < rank:
            raise NeuronError(
                "out-of-bounds", what=f"dimension {dim} of a tensor with {rank} dimensions"
            )
        return position

    def _shifted(self, position: int, by: int) -> int | None:
        """The indirect dimension after dimensions from `position` on have moved."""
        if self.indirect_dim is None or self.indirect_dim < position:
            return self.indirect_dim
        return self.indirect_dim + by

    def _need_one(self, method: str, dim: int) -> None:
        if not identical(self.shape[dim], 1):
            raise NeuronError(
                "view-not-allowed",
                what=f"{method} of dimension {dim}, whose size is {self.shape[dim]}",
                why="The dimension must have size 1.",
                hint="Select one element of it first.",
            )

    def _keep_first(self, method: str, argument: Any) -> None:
        """Dimension 0 is fixed on chip, and in views with an index per row."""
        if self.storage.memory.on_chip or self.vector_offset is not None:
            dimension = (
                "partition dimension" if self.storage.memory.on_chip else "indexed dimension"
            )
            raise NeuronError(
                "view-not-allowed",
                what=f"{method}({argument}) changes the {dimension} of shape {list(self.shape)}",
                why=f"The {dimension} stays first and whole in every view.",
                hint="Move data between partitions with nisa.nc_transpose or nisa.dma_copy.",
            )
