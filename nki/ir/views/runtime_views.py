"""Views that registers and indices decide at run time, and access patterns written out (`ap`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from isa.affine import identical
from isa.errors import NeuronError
from nki.ir.locations import author_location, resolve
from nki.ir.nodes import Register
from nki.ir.views.attributes import ViewAttributes
from nki.ir.views.indexing import index_form, require
from nki.ir.views.pattern import (
    DtypeScale,
    by_partition,
    check_pattern,
    check_reach,
    constant_part,
    ends,
    known_partition,
    pairs_of,
)
from nki.ir.views.runtime_index import index_rows, scalar_index

if TYPE_CHECKING:
    from nki.ir.views.tensor import NkiTensor


class RuntimeViews(ViewAttributes):
    """Views of a tensor by run-time index, or by (stride, count) pairs."""

    __slots__ = ()

    if TYPE_CHECKING:  # methods of NkiTensor

        def _index(self, key: tuple[Any, ...]) -> NkiTensor: ...
        def _strided(self, dtype: str, *view: Any) -> NkiTensor: ...
        def _outside(self, problem: NeuronError, dtype: str, *view: Any) -> NkiTensor: ...

    def select(self, dim: int, index: Any) -> NkiTensor:
        """One element of a dimension, which goes away (dimension 0 stays with size 1 on chip).

        `index` is an int, a loop variable, a register, or an SBUF tensor of one element that holds
        the index at run time. Such a tensor picks from no dimension 0 on chip, and once per view.

        >>> import numpy as np, nki, nki.language as nl
        >>> @nki.jit
        ... def kernel(a):
        ...     print(a.select(1, 3).get_pattern(), a.select(1, 3).offset)
        ...     print(nl.load(a).select(0, 1).shape)
        >>> kernel(np.zeros((2, 4), np.float32))
        [[4, 2]] 3
        (1, 4)
        """
        dim = self._dimension(dim)
        if not isinstance(index, (RuntimeViews, Register)):
            require(index_form(index, "index"), f"select({dim}, {index})")
            return self._index((*[slice(None)] * dim, index))
        if dim == 0 and self.on_chip:
            raise NeuronError(
                "view-not-allowed",
                what="the partition dimension is selected by a run-time index",
                why="The start partition of an instruction is fixed when it is compiled.",
                hint="Select from a tensor in HBM, or from a free dimension.",
            )
        offset = self.offset + scalar_index(self, index) * self.strides[dim]
        shape = self.shape[:dim] + self.shape[dim + 1 :]
        strides = self.strides[:dim] + self.strides[dim + 1 :]
        if len(shape) < min(2 if self.on_chip else 1, len(self.shape)):
            shape, strides = (*shape, 1), (*strides, self.strides[dim])
        picked: Any = self._with(shape, strides, offset, self.first, -1)
        selected: NkiTensor = picked
        return selected

    def vector_select(self, dim: int, vector_offset: NkiTensor) -> NkiTensor:
        """Rows of an HBM tensor by run-time index: row i is row `vector_offset[i]` of dimension 0.

        `vector_offset` is [rows, 1] int32 or uint32 in SBUF.

        >>> import numpy as np, nki, nki.language as nl
        >>> @nki.jit
        ... def gather(table, rows):
        ...     out = nl.ndarray((2, 2), dtype=table.dtype, buffer=nl.shared_hbm)
        ...     nl.store(out, nl.load(table.vector_select(0, nl.load(rows))))
        ...     return out
        >>> table = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
        >>> print(gather(table, np.array([[2], [0]], np.int32)))
        [[5. 6.]
         [1. 2.]]
        """
        if dim != 0:
            raise NeuronError("indirect", what=f"vector_select of dimension {dim}, not 0")
        rows = index_rows(self, vector_offset)
        return self._strided(
            self.dtype,
            (rows, *self.shape[1:]),
            self.strides,
            self.offset,
            0,
            0,
            vector_offset,
            self.strides[0],
            self.shape[0],
        )

    def indirect(self, index: NkiTensor, num_elem: int | None = None) -> NkiTensor:
        """Columns of an on-chip tensor by run-time index (gen4): element i of a partition is that
        with number `index[i]` in its free dimensions. Operations read (gather) or write (scatter)
        the view.

        `index` has as many partitions as this tensor, in SBUF, int16, uint16, int32 or uint32. Each
        group of 16 partitions (32 for nc_matmul) reads the indices in its own partitions: index i
        is in row i % 16 of the group, column i // 16. The result is [partitions, num_elem]; without
        num_elem all of index.size.

        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit(platform_target="trn3")
        ... def three_columns(a, indices):
        ...     tile = nl.ndarray((16, 3), dtype=a.dtype, buffer=nl.sbuf)
        ...     columns = nl.load(a).indirect(nl.load(indices), num_elem=3)
        ...     nisa.tensor_copy(dst=tile, src=columns)
        ...     out = nl.ndarray((16, 3), dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> a = np.arange(16 * 8, dtype=np.float32).reshape(16, 8)
        >>> indices = np.array([[7], [0], [3]] + [[0]] * 13, np.int32)
        >>> print(three_columns(a, indices)[:2])
        [[ 7.  0.  3.]
         [15.  8. 11.]]
        """
        if self.is_indirect():
            raise NeuronError("indirect", what="indirect() of a view that already has an index")
        if not self.on_chip:
            raise NeuronError(
                "indirect",
                what=f"indirect() of {self.name!r} in {self.buffer.value}",
                why="Engines pick columns of tensors in SBUF and PSUM.",
                hint="Pick rows in HBM with vector_select.",
            )
        if not self.is_contiguous():
            raise NeuronError(
                "view-not-allowed",
                what=f"indirect() of a view with strides {self.strides}",
                why="Indices count the elements of a partition, which lie side by side.",
                hint="Take indirect() of the whole tensor, or of a slice of its last dimension.",
            )
        if (
            not isinstance(index, RuntimeViews)
            or index.is_indirect()
            or not identical(index.shape[0], self.shape[0])
        ):
            raise NeuronError(
                "indirect",
                what=f"the index is {index!r}",
                why="An index is a tensor in SBUF with the partitions of the view.",
                hint=f"Give it the shape ({self.shape[0]}, columns).",
            )
        count = index.size if num_elem is None else index_form(num_elem, "num_elem")
        require(count - 1, f"num_elem={count}")
        free = math.prod(self.shape[1:])
        strides = (self.strides[0], 1)
        shape = (self.shape[0], count)
        return self._strided(self.dtype, shape, strides, self.offset, self.first, 1, index, 1, free)

    def ap(
        self,
        pattern: Sequence[Sequence[Any]],
        offset: Any = None,
        scalar_offset: Any = None,
        vector_offset: NkiTensor | None = None,
        indirect_dim: int = 0,
        dtype: str | None = None,
    ) -> NkiTensor:
        """A view of the storage with the given [[stride, count], ...], in elements of `dtype`.

        `offset` is added to this view's own offset (the API page's reading; on a new tensor all
        readings agree). `scalar_offset` (a register, or a one-element SBUF tensor) moves the start
        by that many steps of dimension `indirect_dim` of this view; `vector_offset` ([rows, 1] in
        SBUF; HBM views only) gives an index of dimension 0 per row; for nisa.dma_transpose it may
        have several columns. On chip the first pair's stride is the elements per partition: those
        of the storage, or of this view if they lie together.

        >>> import numpy as np, nki, nki.language as nl
        >>> @nki.jit
        ... def diagonal(a):
        ...     out = nl.ndarray((3, 1), dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nl.store(out, nl.load(a.ap([[4, 3], [1, 1]])))  # every fourth element
        ...     return out
        >>> print(diagonal(np.arange(9, dtype=np.float32).reshape(3, 3)))
        [[0.]
         [4.]
         [8.]]
        """
        scale = DtypeScale(self.dtype, self.dtype if dtype is None else dtype)
        pairs = pairs_of(pattern)
        strides = tuple(stride for stride, _ in pairs)
        shape = tuple(count for _, count in pairs)
        if not isinstance(offset, Register):
            offset = index_form(0 if offset is None else offset, "offset")
        start = scale.form(self.offset, "offset") + offset
        storage = self.storage
        pitch = DtypeScale(storage.dtype, scale.new).form(storage.pitch, "partition size")
        strides = by_partition(self, strides, scale, pitch)
        check_pattern(self, pattern, shape, strides, pitch)
        begin, first, free = 0, 0, start
        if pitch:
            begin = known_partition(constant_part(start) // pitch)
            free = start - begin * pitch
            first = begin + (0 if storage.address is None else storage.address[0])
        plain = scalar_offset is None and vector_offset is None
        try:
            check_reach(self, shape, strides, free, pitch, begin, scale, vector_offset is not None)
        except NeuronError as problem:
            if not plain:
                raise
            problem.location = problem.location or resolve(author_location())
            return self._outside(problem, scale.new, shape, strides, start)
        if plain:
            indirect = None if self.indirect_dim is None else -1
            return self._strided(scale.new, shape, strides, start, first, indirect)
        if scalar_offset is not None and vector_offset is not None:
            raise NeuronError(
                "indirect",
                what="both scalar_offset and vector_offset are given",
                hint="Pass one of them.",
            )
        dimension = self._dimension(indirect_dim)
        step = scale.form(self.strides[dimension], "stride")
        if scalar_offset is not None:
            if pitch and dimension == 0:
                raise NeuronError(
                    "view-not-allowed",
                    what="scalar_offset moves the partition dimension (indirect_dim=0 on chip)",
                    why="The start partition of an instruction is fixed when it is compiled.",
                    hint="Use a free dimension, or a tensor in HBM.",
                )
            moved = start + scalar_index(self, scalar_offset) * step
            return self._strided(scale.new, shape, strides, moved, first, dimension)
        if dimension != 0:
            raise NeuronError("indirect", what=f"vector_offset with indirect_dim={indirect_dim}")
        assert vector_offset is not None
        rows = index_rows(self, vector_offset, one_column=False)
        columns = math.prod(vector_offset.shape[1:])
        if not (identical(shape[0], rows) or shape[0] <= rows * columns):
            raise NeuronError(
                "indirect",
                what=f"the pattern has {shape[0]} rows and vector_offset {rows * columns} indices",
                hint="Give the first pair of the pattern no more rows than there are indices.",
            )
        total = scale.form(math.prod(storage.shape), "size")
        bound = (total - 1 - start - ends(shape[1:], strides[1:])[1]) // step + 1
        return self._strided(scale.new, shape, strides, start, 0, 0, vector_offset, step, bound)
