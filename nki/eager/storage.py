"""Tensors of an eager run: their bytes, and accesses placed in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from isa.affine import Affine
from isa.dtypes import DTYPES
from isa.errors import NeuronError
from nki.ir import locations
from nki.ir.nodes import Access, Tensor
from nki.ir.open_loops import Iteration
from simulator.checks.initialised import Shadow
from simulator.checks.regions import CLEAN, EMPTY, MarkedRegion
from simulator.oracle import fill_sentinel
from simulator.views import PlacedAccess, view_dtype


class Storage:
    """The bytes of one tensor: on chip `rows` partitions of `row_bytes`, in HBM one row.

    It starts without data. With a `shadow`, its `state` is CLEAN or EMPTY, as of a region of
    `simulator.checks.regions`, until `mirrored` makes marks for it. It gets its sentinel when
    something is about to see that nothing was written: most tensors are written as a whole.
    """

    __slots__ = (
        "_region",
        "_state",
        "_unfilled",
        "buffer",
        "places",
        "row_bytes",
        "rows",
        "shadow",
        "shape",
        "tensor",
        "views",
    )

    def __init__(self, tensor: Tensor, shape: tuple[int, ...], shadow: Shadow | None) -> None:
        self._region: MarkedRegion | None = None
        self.views: dict[tuple[Any, ...], Any] = {}
        self.places: dict[int, tuple[Any, Any]] = {}
        """By the identity of a view: the view, and what `nki.eager.numbers` knows of it."""
        self.tensor = tensor
        self.shape = shape
        total = DTYPES[tensor.dtype].size
        for count in shape:
            total *= count
        self.rows = shape[0] if tensor.memory.on_chip else 1
        self.row_bytes = total // max(self.rows, 1)
        self.buffer: np.ndarray[Any, Any] = np.empty(total, np.uint8)
        self.shadow = shadow
        self._state = EMPTY
        self._unfilled: np.ndarray[Any, Any] | None = np.ndarray(
            shape, view_dtype(tensor.dtype), self.buffer
        )
        if shadow is None:
            self.expose()

    def __del__(self) -> None:
        # An allocation that failed has neither.
        if getattr(self, "_region", None) is not None and self.shadow is not None:
            self.shadow.spaces.pop(self.buffer)

    @property
    def state(self) -> int:
        """Whether all is initialised, nothing, or marks tell."""
        return self._state if self._region is None else self._region.state

    def initialise(self) -> None:
        """All of it holds data."""
        if self._region is None:
            self._state = CLEAN
        else:
            self._region.state = CLEAN

    def mirrored(self) -> MarkedRegion:
        """The region of the shadow that says which bytes hold data, made when first asked for."""
        if self._region is None:
            assert self.shadow is not None
            unit = DTYPES[self.tensor.dtype].size
            region = self.shadow.add(self.buffer, 0, self._state == CLEAN, unit).whole
            assert region is not None, "it is a tensor, not an arena"
            region.unfilled = self._unfilled
            self._region = region
        return self._region

    def expose(self) -> None:
        """Something is about to see the bytes: what was not written of them gets its sentinel."""
        if self._region is not None:
            self._region.fill()
        elif self._state == EMPTY and self._unfilled is not None:
            fill_sentinel(self._unfilled)
            self._unfilled = None

    def copy(self) -> np.ndarray[Any, Any]:
        """The contents as an array of the dtype's ordinary NumPy type."""
        return self.described_by(self.tensor)

    def described_by(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        """A copy as `copy` makes, in the shape and dtype of another description of the bytes."""
        self.expose()
        array = np.ndarray(tensor.shape, view_dtype(tensor.dtype), self.buffer)
        return DTYPES[tensor.dtype].array(array)

    def check_output(self, shadow: Shadow) -> None:
        """Raise uninitialised-output or output-not-written unless all of it holds data."""
        tensor, size = self.tensor, DTYPES[self.tensor.dtype].size
        self.mirrored()
        shadow.check_output(self.buffer, tensor.name, size, locations.resolve, tensor.location)

    def assign(self, data: np.ndarray[Any, Any]) -> None:
        """Make it hold an array of the same dtype and shape, with bytes in either order."""
        data = np.ascontiguousarray(data, data.dtype.newbyteorder("="))
        self.buffer[...] = data.reshape(-1).view(np.uint8)
        self.initialise()


class EagerTensor(Tensor):
    """A tensor with its contents, which go when the last view of it does.

    `description` describes it without contents: what bookkeeping keeps, until the tensor goes and
    `forget` is told. `iteration` is that of the rolled loop whose body made it.
    """

    __slots__ = ("contents", "description", "forget", "iteration", "run", "written")

    def __init__(
        self,
        description: Tensor,
        shadow: Shadow | None,
        run: object = None,
        iteration: Iteration | None = None,
    ) -> None:
        for slot in Tensor.__slots__:
            setattr(self, slot, getattr(description, slot))
        self.description = description
        self.run = run
        self.forget: Callable[[Tensor], None] | None = None
        self.iteration = iteration
        self.written = False
        self.contents = Storage(description, self.shape, shadow)

    def __del__(self) -> None:
        if self.forget is not None:
            self.forget(self.description)


def storage_of(tensor: Any) -> Storage:
    """The bytes of an `EagerTensor`, which the nodes of the tile IR know as a tensor."""
    contents: Storage = tensor.contents
    return contents


class StorageView(PlacedAccess):
    """An access placed in its storage. `fixed` is its NumPy view unless registers decide it."""

    __slots__ = ("access", "storage")

    index: StorageView | None

    def __init__(self, access: Access, skip: bool = False) -> None:
        size = DTYPES[access.dtype].size
        self.access = access
        self.storage = storage_of(access.storage)
        vector, rows = access.vector_offset, None
        dims = [*zip(access.strides, access.shape)]
        if access.storage.memory.on_chip:
            (stride, partitions), *dims = dims
            rows = partitions, stride * size
        terms: tuple[tuple[int, int], ...] = ()
        offset = access.offset
        if isinstance(offset, Affine):
            terms = tuple((r.number, c * size) for r, c in offset.terms)
            offset = offset.constant
        super().__init__(
            self.storage.buffer,
            access.dtype,
            offset * size,
            dims,
            rows,
            terms,
            skip,
            None if vector is None else StorageView(vector),
            (access.vector_stride, access.vector_bound),
        )
        if not self.dynamic:
            self.view({})

    def _inside(self, offset: int, moved: int = 0) -> bool:
        storage = self.storage
        row, column = 0, offset
        if self.on_chip:
            row, column = divmod(offset, storage.row_bytes)
            if row < 0 or row + self.shape[0] > storage.rows:
                return False
        return column + self.low >= 0 and column + self.high <= storage.row_bytes

    def _outside(self, offset: int, moved: int = 0) -> NeuronError:
        size, storage = self.dtype.itemsize, self.storage
        return NeuronError(
            self._code,
            f"{self.name}{list(self.shape)} at element {offset // size} with strides "
            f"{[stride // size for stride in self.strides]} leaves {storage.tensor.name!r}, which "
            f"is {storage.tensor.dtype}{list(storage.shape)}",
        )
