"""`NkiTensor`: a view of storage in SBUF, PSUM or HBM.

Views are arithmetic on shape, strides and offset while tracing; they cost nothing on the device
(SDK nki/get-started/nki-language-guide.rst, "Tensor Values"; nki/deep-dives/nki-aps.rst).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from isa.affine import identical
from isa.dtypes import normalise
from isa.enums import Memory
from isa.errors import NeuronError
from isa.rules.form import plural
from nki.ir.context import caller, current
from nki.ir.locations import author_location, resolve
from nki.ir.nodes import Access, Register, Tensor
from nki.ir.views import layout
from nki.ir.views.indexing import DynamicSlice, element, index_form, require, span, whole, window
from nki.ir.views.objects import NKIObject
from nki.ir.views.pattern import (
    DtypeScale,
    known_partition,
)
from nki.ir.views.refused import NoNumber
from nki.ir.views.runtime_index import reinterpreted
from nki.ir.views.runtime_views import RuntimeViews
from nki.ir.views.shape_views import ShapeViews, new_view
from nki.ir.views.shown import Shown

_new = object.__new__


def strided(storage: Tensor, dtype: str, *view: Any) -> NkiTensor:
    """Any view of a storage, unchecked: shape, strides, offset, ... as for `new_view`."""
    return new_view(NkiTensor, storage, dtype, *view)


def _become(view: NkiTensor, other: NkiTensor) -> None:
    """Make a view what another one is."""
    for cls in (Access, ShapeViews):
        for name in cls.__slots__:
            object.__setattr__(view, name, cls.__dict__[name].__get__(other))
    object.__setattr__(view, "__class__", type(other))


class NkiTensor(RuntimeViews, Shown, NoNumber):
    """A strided view of a tensor in one of the device's memories.

    It has the sizes `shape`. Element (i0, i1, ...) is storage element `offset + sum(i * stride)`,
    with a stride of `strides` for each dimension, counted in elements of `dtype`. In SBUF and PSUM
    dimension 0 is the partition dimension, and views keep at least two dimensions. Sizes may be
    polynomials in launch symbols; offsets may also hold loop variables and registers. Views share
    storage and copy nothing. Made by `nl.ndarray` and by the methods here.

    `first` is the start partition (0 in HBM), counted from that of the storage's address if it
    has one. `indirect_dim` is None for a view whose position is
    known, else the dimension that a run-time index moves, or -1 when that dimension is gone.

    Source: SDK nki/api/nki/language/__init__.py (NkiTensor).

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def kernel(a):
    ...     part = nl.load(a)[:, 1:3]
    ...     print(part.name, part.shape, part.dtype, part.strides, part.offset)
    ...     print(part.buffer.name, part.on_chip, part.ndim, part.size)
    >>> kernel(np.zeros((2, 4), np.float32))
    tensor (2, 2) float32 (4, 1) 1
    sbuf True 2 4
    """

    __slots__ = ()

    def __init__(
        self,
        shape: Sequence[Any],
        dtype: Any,
        storage: Tensor | None,
        buffer: Memory = Memory.sbuf,
        name: str = "",
    ) -> None:
        """A tensor on the storage of another one, dense from its beginning; `nl.ndarray` makes new
        storage. `storage` is what `tensor.storage` gives, in the memory `buffer`; with None the
        tensor has no storage, so that its attributes serve as a signature and no operation takes
        it. `name` is for such a tensor; others are called as their storage.
        """
        sizes = tuple(index_form(size, "a size") for size in shape)
        dtype = normalise(dtype)
        if storage is None:
            from nki.ir.views.without_storage import Signature

            placeholder = Tensor(-1, name or "signature", buffer, dtype, sizes)
            strides = layout.dense_strides(sizes)
            _become(self, new_view(Signature, placeholder, dtype, sizes, strides))
            return
        if storage.memory is not buffer:
            raise NeuronError(
                "wrong-memory",
                what=f"the storage of {storage.name!r} is in {storage.memory.value}, buffer is "
                f"{getattr(buffer, 'value', buffer)}",
                why="A tensor is where its storage is.",
                hint="Pass buffer=tensor.buffer.",
            )
        scale = DtypeScale(storage.dtype, dtype)
        pitch = scale.form(storage.pitch, "partition size")
        strides, free = layout.dense_strides(sizes), math.prod(sizes)
        limit = pitch or scale.form(math.prod(storage.shape), "size")
        if pitch:
            strides, free = (pitch, *strides[1:]), math.prod(sizes[1:])
            require(storage.shape[0] - sizes[0], f"{sizes[0]} partitions of {storage.name!r}")
        require(limit - free, f"{free} elements of {storage.name!r}, which has {limit}")
        first = 0 if storage.address is None else storage.address[0]
        _become(self, new_view(NkiTensor, storage, dtype, sizes, strides, 0, first))

    @property
    def base_tensor(self) -> NkiTensor:
        """All of the tensor that this is a view of, in its own shape and data type.

        No document names it; public kernels (nki-library, moe_tkg) use it.

        >>> import numpy as np, nki, nki.language as nl
        >>> @nki.jit
        ... def kernel(a):
        ...     view = nl.load(a)[:, 2:3].view(nl.uint32)
        ...     print(view.shape, view.dtype, view.base_tensor.shape, view.base_tensor.dtype)
        >>> kernel(np.zeros((2, 4), np.float32))
        (2, 1) uint32 (2, 4) float32
        """
        storage = self.storage
        return NkiTensor(storage.shape, storage.dtype, storage, storage.memory)

    # Indexing

    def __getitem__(self, key: Any) -> NkiTensor:
        """The view that ints, slices, `...` and `nl.ds` select, NumPy style.

        Slices clamp to the tensor as in Python; an empty slice and an index outside are
        out-of-bounds errors (an `nl.ds` of size 0 when an operation takes it). On chip an int keeps
        dimension 0 with size 1 and at least two dimensions remain; in HBM an int removes its
        dimension and at least one remains.

        >>> import numpy as np, nki, nki.language as nl
        >>> @nki.jit
        ... def kernel(a):
        ...     print(a[0, 1:3].shape, a[..., 0].shape, a[:, nl.ds(1, 2)].offset)
        ...     print(nl.load(a)[0, 1:3].shape)
        >>> kernel(np.zeros((2, 4), np.float32))
        (2,) (2,) 1
        (1, 2)
        """
        if key.__class__ is not tuple:
            key = (key,)
        shape = self.shape
        strides = self.strides
        if len(key) != len(shape) or self.indirect_dim is not None:
            return self._index(key)
        storage = self.storage
        offset = self.offset
        sizes: list[Any] = []
        kept: list[Any] | None = None  # strides, once a dimension went away
        begin = None
        for part, size, stride in zip(key, shape, strides):
            kind = part.__class__
            if size.__class__ is not int:
                return self._index(key)
            if kind is slice:
                start = part.start
                stop = part.stop
                if start is None:
                    start = 0
                elif start.__class__ is not int:
                    return self._index(key)
                if part.step is not None:
                    return self._index(key)
                if stop is None:
                    stop = size
                if stop.__class__ is not int or not 0 <= start < stop <= size:
                    return self._index(key)
                sizes.append(stop - start)
            elif kind is DynamicSlice:
                start = part.start
                count = part.size
                if start.__class__ is not int or count.__class__ is not int:
                    return self._index(key)
                if start < 0 or count < 1 or start + count > size:
                    return self._index(key)
                sizes.append(count)
            elif kind is int and 0 <= part < size:
                start = part
                if begin is None and storage.pitch:
                    sizes.append(1)
                elif kept is None:
                    kept = list(strides[: len(sizes)])
                    offset = offset + start * stride
                    begin = begin or 0
                    continue
                else:
                    offset = offset + start * stride
                    continue
            else:
                return self._index(key)
            if kept is not None:
                kept.append(stride)
            if start:
                offset = offset + start * stride
            if begin is None:
                begin = start
        if kept is not None:
            if len(sizes) < (2 if storage.pitch else 1):
                return self._index(key)
            strides = tuple(kept)
        view: Any = _new(ShapeViews)
        view.storage = storage
        view.dtype = self.dtype
        view.shape = tuple(sizes)
        view.strides = strides
        view.offset = offset
        view.first = self.first + (begin or 0) if storage.pitch else 0
        view.indirect_dim = view.vector_offset = None
        view.vector_stride = view.vector_bound = 0
        view.__class__ = NkiTensor
        selected: NkiTensor = view
        return selected

    def _nothing(self, parts: Sequence[Any]) -> NkiTensor:
        """The view of no elements that an `nl.ds` of size 0 selects; kernels form it for a core
        that has nothing to do."""
        sizes = tuple(
            0 if isinstance(part, DynamicSlice) and part.empty else size
            for part, size in zip(parts, self.shape)
        )
        problem = NeuronError(
            "out-of-bounds",
            what=f"a view of {self.name!r} without elements: shape {list(sizes)}",
            hint="Leave the operation out when there is nothing to do.",
            location=resolve(author_location()),
        )
        return self._outside(problem, self.dtype, sizes, self.strides, self.offset)

    def _index(self, key: tuple[Any, ...]) -> NkiTensor:
        """`__getitem__` for every kind of key."""
        parts = self._full_key(key)
        if any(isinstance(part, DynamicSlice) and part.empty for part in parts):
            return self._nothing(parts)
        on_chip = self.on_chip
        shape: list[Any] = []
        strides: list[Any] = []
        offset, first, indirect = self.offset, self.first, self.indirect_dim
        if on_chip and self.vector_offset is not None:
            raise NeuronError("indirect", what=f"a part of an indirect() view of {self.name!r}")
        removed: Any = None
        for dimension, (part, size, stride) in enumerate(zip(parts, self.shape, self.strides)):
            step, keep = 1, True
            if isinstance(part, slice):
                if part.start is part.stop is part.step is None:
                    shape.append(size)
                    strides.append(stride)
                    continue
                start, length, step = span(part, size, dimension)
            elif isinstance(part, DynamicSlice):
                start, length = window(part.start, part.size, size, dimension)
            else:
                start, length = element(part, size, dimension), 1
                keep = on_chip and dimension == 0
            if self.indirect_dim == dimension:
                raise NeuronError(
                    "indirect",
                    what=f"dimension {dimension} is moved by a run-time index and cannot be "
                    "indexed again",
                )
            if on_chip and dimension == 0:
                first += known_partition(start)
                if step != 1:
                    raise NeuronError(
                        "view-not-allowed",
                        what=f"the partition dimension is sliced with step {step}",
                        why="An instruction reads consecutive partitions (SDK nki-aps.rst, "
                        '"Restriction on SBUF/PSUM Tensors").',
                        hint="Take consecutive partitions, or copy with nisa.dma_copy.",
                    )
            if isinstance(getattr(part, "start", part), Register) and indirect is None:
                indirect = -1
            offset = offset + start * stride
            if keep:
                shape.append(length)
                strides.append(stride * step)
            else:
                removed = stride
                if indirect is not None and indirect > dimension:
                    indirect -= 1
        if len(shape) < min(2 if on_chip else 1, len(self.shape)):
            shape.append(1)
            strides.append(removed)
        return self._with(tuple(shape), tuple(strides), offset, first, indirect)

    def _full_key(self, key: tuple[Any, ...]) -> list[Any]:
        """The key with `...` and missing dimensions filled in, and slices for ranges."""
        ellipses = [i for i, part in enumerate(key) if part is Ellipsis]
        given = len(key) - len(ellipses)
        if len(ellipses) > 1 or given > len(self.shape):
            several = f" and {len(ellipses)} `...`" if len(ellipses) > 1 else ""
            raise NeuronError(
                "view-not-allowed",
                what=f"{given} indices{several} for a tensor of "
                f"{plural(len(self.shape), 'dimension')}, {list(self.shape)}",
                why="A key has at most one index a dimension and one `...`.",
                hint="Remove an index; a vector is loaded as a row: vector.reshape((1, n))."
                if len(self.shape) == 1
                else "Remove an index.",
            )
        fill = [slice(None)] * (len(self.shape) - given)
        position = ellipses[0] if ellipses else len(key)
        full = [*key[:position], *fill, *key[position + len(ellipses) :]]
        sizes = enumerate(self.shape)
        return [whole(p, n, d) if type(p) is range else p for p, (d, n) in zip(full, sizes)]

    def __setitem__(self, key: Any, value: Any) -> None:
        """Elements take the values of a tensor, or on chip a number (`nki.ir.builder.assignment`).

        >>> import numpy as np, nki, nki.language as nl
        >>> @nki.jit
        ... def kernel(a):
        ...     tile = nl.load(a)
        ...     tile[:, 1:3] = 0.0
        ...     a[:, 0:3] = tile[:, 1:4]
        >>> a = np.array([[1, 2, 3, 4]], np.float32)
        >>> kernel(a)
        >>> print(a)
        [[0. 0. 4. 4.]]
        """
        view, context = self[key], current("an assignment to elements of a tensor")
        context.assign(view, value, author_location() or caller())

    def slice(self, dim: int, start: Any, end: Any, step: int = 1) -> NkiTensor:
        """Elements start, start + step, ... below `end` of one dimension, all inside it.

        >>> import numpy as np, nki
        >>> @nki.jit
        ... def kernel(a):
        ...     part = a.slice(1, 1, 6, step=2)
        ...     print(part.get_pattern(), part.offset)
        >>> kernel(np.zeros((2, 6), np.float32))
        [[6, 2], [2, 3]] 1
        """
        dim = self._dimension(dim)
        require(
            self.shape[dim] - index_form(end, "end"),
            f"slice {start}:{end} of dimension {dim} of size {self.shape[dim]}",
        )
        require(index_form(start, "start"), f"slice {start}:{end} of dimension {dim}")
        key = [slice(None)] * len(self.shape)
        key[dim] = slice(start, end, step)
        return self._index(tuple(key))

    # Other dtypes

    def view(self, dtype: str) -> NkiTensor:
        """The same bytes as another dtype; the last dimension, dense in memory, scales.

        >>> import numpy as np, nki, nki.language as nl
        >>> @nki.jit
        ... def bits(a):
        ...     out = nl.ndarray((1, 2), dtype=nl.uint32, buffer=nl.shared_hbm)
        ...     nl.store(out, nl.load(a).view(nl.uint32))
        ...     return out
        >>> [hex(word) for word in bits(np.array([[1, -2]], np.float32))[0]]
        ['0x3f800000', '0xc0000000']
        """
        scale = DtypeScale(self.dtype, dtype)
        if self.is_indirect():
            raise reinterpreted(dtype)
        if scale.old_size == scale.new_size:
            return self._as(scale.new, self.shape, self.strides, self.offset)
        last = len(self.shape) - 1
        if not identical(self.strides[last], 1) and not identical(self.shape[last], 1):
            raise NeuronError(
                "view-not-allowed",
                what=f"view({dtype}) where the last dimension has stride {self.strides[last]}",
                why="The last dimension must be dense in memory, since its bytes are regrouped.",
                hint="Take the view before slicing or permuting.",
            )
        sizes = (*self.shape[:last], scale.form(self.shape[last], "last dimension"))
        strides = (*(scale.form(s, "stride") for s in self.strides[:last]), 1)
        return self._as(scale.new, sizes, strides, scale.form(self.offset, "offset"))

    reinterpret_cast = view

    # Parts of views

    def _strided(self, dtype: str, *view: Any) -> NkiTensor:
        return strided(self.storage, dtype, *view)

    def _outside(self, problem: NeuronError, dtype: str, *view: Any) -> NkiTensor:
        """A view of shape, strides and offset that is `problem` when an operation uses it."""
        from nki.ir.views.without_storage import OutsideView

        return OutsideView(problem, dtype, *view)

    def _as(
        self, dtype: str, shape: tuple[Any, ...], strides: tuple[Any, ...], offset: Any
    ) -> NkiTensor:
        indices = self.vector_offset, self.vector_stride, self.vector_bound
        place = offset, self.first, self.indirect_dim
        return new_view(NkiTensor, self.storage, dtype, shape, strides, *place, *indices)


NKIObject.register(NkiTensor)  # as documented, without the attributes of a plain class
