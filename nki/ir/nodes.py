"""Nodes of the tile IR. Slots classes with plain constructors, immutable by convention.

    kernel   = parameters, results, symbols, guards, one body (list of nodes) per core
    node     = Op | Loop | While
    Op       = operation row + values aligned with the row's fields
    Access   = view of a Tensor: shape, strides, offset in elements of its dtype

Offsets are index forms: an int, a polynomial in launch symbols, or an `isa.affine.Affine` with
register terms. Loop variables are registers. Strides are ints or polynomials.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from isa.affine import structure
from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.program import Guard
from isa.spec import Operation, defaults

_INT = {int}


@dataclass(slots=True, eq=False, repr=False)
class Register:
    """A virtual 32-bit register: `register_alloc`, or the variable of a loop.

    `lower` and `upper` bound a loop variable's values (inclusive), None where unknown.

    >>> Register(3, "i", lower=0, upper=7)
    %r3
    """

    number: int
    name: str = ""
    location: Any = None
    lower: Any = None
    upper: Any = None

    def __repr__(self) -> str:
        return f"%r{self.number}"


@dataclass(slots=True, eq=False, repr=False)
class Tensor:
    """An allocation. `role`: "input", "output", "inout", "local" or "constant".

    `pitch` is the elements per partition (product of shape[1:]) on chip, 0 in HBM. `address` is
    the author's (start partition, byte offset), or None. `core` is the core whose body allocates
    it, None for shared HBM. `data` holds a constant's NumPy array. `copy` counts those of a core
    that have one `label`: they are called "tile", "tile.1", "tile.2", ...

    A tensor in HBM may lie `within` another one, from byte `offset` of it on: an int, a polynomial,
    or an index form over registers. Then it has no memory of its own, and shows bytes of the other
    tensor in its own shape and dtype. Accesses have to stay within its bounds. `divided` says that
    others lie within this one.

    >>> tile = Tensor(0, "tile", Memory.sbuf, "float32", (128, 64), copy=1)
    >>> tile, tile.pitch, bytes_of(tile)
    (<sbuf tile.1 float32[128, 64]>, 64, 32768)
    """

    number: int
    label: str
    memory: Memory
    dtype: str
    shape: tuple[Any, ...]
    role: str = "local"
    address: tuple[int, int] | None = None
    core: int | None = None
    location: Any = None
    data: Any = None
    copy: int = 0
    within: Tensor | None = None
    offset: Any = 0
    divided: bool = field(default=False, init=False)
    pitch: Any = field(default=0, init=False)
    _stored: bytes | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.within is not None:
            self.within.divided = True
        if self.memory.on_chip:
            self.pitch = prod(self.shape[1:])

    @property
    def name(self) -> str:
        return f"{self.label}.{self.copy}" if self.copy else self.label

    @property
    def is_free(self) -> bool:
        """Whether only the kernel's operations see a tensor, and the compiler may place it."""
        return self.address is None and self.role == "local" and not self.divided

    @property
    def row_bytes(self) -> int:
        """The bytes of a partition that a tensor on chip covers."""
        return self.pitch * DTYPES[self.dtype].size

    @property
    def owner(self) -> str:
        """The inlined kernel that the tensor is of: its label begins with that. Else nothing."""
        return self.label.rpartition("/")[0]

    @property
    def stored(self) -> bytes | None:
        """The bytes of its data, made once; None without."""
        if self._stored is None and self.data is not None:
            self._stored = self.data.tobytes()
        return self._stored

    def lie(self, within: Tensor, offset: Any) -> None:
        """Say where a new tensor lies."""
        self.within = within
        self.offset = offset
        within.divided = True

    def in_root(self) -> tuple[Tensor, Any]:
        """The tensor with memory of its own that this one lies in, if not itself, and its first
        byte there."""
        tensor, offset = self, 0
        while tensor.within is not None:
            offset = tensor.offset + offset
            tensor = tensor.within
        return tensor, offset

    def __repr__(self) -> str:
        return f"<{self.memory.value} {self.name} {self.dtype}{list(self.shape)}>"


def bytes_of(tensor: Any) -> Any:
    """The bytes of a tensor: an int or a polynomial."""
    return DTYPES[tensor.dtype].size * prod(tensor.shape)


class Access:
    """A view of a tensor: element (i0, i1, ...) is storage element offset + sum(i * stride).

    On chip the storage is [partitions, pitch] row-major, dimension 0 is the partition dimension
    with stride `pitch` (scaled when `dtype` is not the tensor's). With `vector_offset` (an
    Access of one index a partition) element row i of dimension 0 starts at
    offset + index[i] * vector_stride, and indices are below `vector_bound`.

    >>> tile = Tensor(0, "tile", Memory.sbuf, "float32", (128, 64))
    >>> columns = Access(tile, "float32", (128, 8), (64, 1), offset=16)
    >>> columns.shape, columns.offset, tile.pitch
    ((128, 8), 16, 64)
    """

    limits: tuple[Any, Any] | None = None

    __slots__ = (
        "dtype",
        "offset",
        "shape",
        "storage",
        "strides",
        "vector_bound",
        "vector_offset",
        "vector_stride",
    )

    def __init__(
        self,
        storage: Tensor,
        dtype: str,
        shape: tuple[Any, ...],
        strides: tuple[Any, ...],
        offset: Any = 0,
        vector_offset: Access | None = None,
        vector_stride: Any = 0,
        vector_bound: Any = 0,
    ) -> None:
        self.storage = storage
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.offset = offset
        self.vector_offset = vector_offset
        self.vector_stride = vector_stride
        self.vector_bound = vector_bound

    @property
    def geometry(self) -> tuple[Any, ...]:
        """Equal for plain views that lie alike within tensors that are alike."""
        tensor = self.storage
        numbers = (self.offset, *self.shape, *self.strides)
        if not _INT.issuperset(map(type, numbers)):
            numbers = tuple(map(structure, numbers))
        return (
            numbers,
            self.dtype,
            tensor.pitch,
            tensor.dtype,
            tensor.memory,
        )


class LimitedAccess(Access):
    """A view of a tensor within `storage` of which only a run can tell that it stays inside of that
    one: `limits` are its first byte and the one behind its last, index forms."""

    __slots__ = ("limits",)

    def __init__(self, view: Access, limits: tuple[Any, Any]) -> None:
        for slot in Access.__slots__:
            setattr(self, slot, getattr(view, slot))
        self.limits = limits


@dataclass(slots=True, eq=False, repr=False)
class Op:
    """One use of an operation. `values` align with `row.field_names`; `location` is a
    (code object, instruction offset) pair or whatever `nki.ir.locations` resolves; `after`
    are the ops that must come first by the author's word (`depends_on`, `no_reorder`).

    >>> from isa.operations.dma import DmaCopy
    >>> memory = Tensor(0, "ab", Memory.shared_hbm, "float32", (8,))
    >>> a, b = [Access(memory, "float32", (4,), (1,), offset) for offset in (0, 4)]
    >>> op = Op.of(DmaCopy, dst=b, src=a)
    >>> op.written == [b], op.read == [a], op.fields["dge_mode"].name
    (True, True, 'unknown')
    """

    row: type[Operation]
    values: tuple[Any, ...]
    location: Any = None
    name: str | None = None
    after: tuple[Op, ...] = ()

    @classmethod
    def of(cls, row: type[Operation], location: Any = None, **fields: Any) -> Op:
        """A use of an operation with values by field; absent ones have defaults."""
        known = defaults(row) | fields
        return cls(row, tuple([known[name] for name in row.field_names]), location)

    @property
    def fields(self) -> dict[str, Any]:
        """The values by field."""
        return dict(zip(self.row.field_names, self.values))

    @property
    def written(self) -> list[Access]:
        """The views that it writes."""
        return [v for i in self.row.writes if isinstance(v := self.values[i], Access)]

    @property
    def read(self) -> list[Access]:
        """The views that it reads."""
        return [v for i in self.row.reads if isinstance(v := self.values[i], Access)]

    def with_values(self, values: tuple[Any, ...], row: type[Operation] | None = None) -> Op:
        """This use with other values, which may be those of another row."""
        return Op(row or self.row, values, self.location, self.name, self.after)


@dataclass(slots=True, eq=False, repr=False)
class Loop:
    """for variable in range(lower, upper, step): body.

    `lower` and `upper` are ints, polynomials, or registers. `unroll` says that
    iterations are expected to overlap, whatever is known of their times (launch-symbol loops).
    The body is so many `copies` of operations, one behind the other. Each has other tensors in
    place of those that begin in it, and the variable is ahead by its part of a step; engines that
    start transfers may differ, too.

    >>> loop = Loop(Register(0, "i", lower=0, upper=6), 0, 8, 2, body=[])
    >>> loop.runs, len(range(loop.lower, loop.upper, loop.step))
    (True, 4)
    """

    variable: Register
    lower: Any
    upper: Any
    step: int
    body: list[Node]
    unroll: bool = False
    location: Any = None
    copies: int = 1

    @property
    def runs(self) -> bool:
        """Whether it is known to have an iteration."""
        return type(self.lower) is int and type(self.upper) is int and self.lower < self.upper


class While:
    """while register != 0: body. The body writes the register.

    >>> left = Register(0, "left")
    >>> While(left, body=[]).register
    %r0
    """

    __slots__ = ("body", "location", "register")

    def __init__(self, register: Register, body: list[Node], location: Any = None) -> None:
        self.register = register
        self.body = body
        self.location = location


Node = Op | Loop | While


@dataclass(slots=True, eq=False, repr=False)
class TracedKernel:
    """A traced kernel. `parameters` are the input tensors in call order (None entries do not
    occur: arguments that are not tensors are part of the specialisation), `results` the output
    tensors in return order, `bodies` one node list per core. `facts` are what passes have found out
    about the bodies, by names of theirs.

    >>> import nki, nki.language as nl
    >>> def kernel(a):
    ...     for row in nl.affine_range(2):
    ...         nl.store(a[nl.ds(128 * row, 128), :], nl.load(a[nl.ds(128 * row, 128), :]))
    >>> traced = nki.jit(kernel).trace(nki.TensorSpec((256, 8), nl.float32))
    >>> traced.name, traced.parameter_names, len(traced.bodies), traced.results
    ('kernel', ['a'], 1, [])
    """

    name: str
    target: str
    parameters: list[Tensor]
    parameter_names: list[str]
    results: list[Tensor]
    bodies: list[list[Node]]
    tensors: list[Tensor]
    symbols: list[Any] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)
    placement: dict[Tensor, tuple[int, int]] | None = None
    facts: dict[Any, Any] = field(default_factory=dict, init=False)

    @property
    def has_loops(self) -> bool:
        return not all(map(_plain, self.bodies))

    def with_bodies(
        self,
        bodies: list[list[Node]],
        tensors: list[Tensor],
        placement: dict[Tensor, tuple[int, int]] | None = None,
    ) -> TracedKernel:
        """The same kernel with other bodies."""
        return replace(self, bodies=bodies, tensors=tensors, placement=placement)


def storages(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors that an operation's values lie in, and those of their row indices."""
    for value in values:
        while isinstance(value, Access):
            yield value.storage
            value = value.vector_offset


def tensors_of(op: Op) -> list[Tensor]:
    """The tensors that an operation's operands lie in, and those of their row indices."""
    found: list[Tensor] = []
    values = op.values
    for index, _ in op.row.accesses:
        view = values[index]
        while view is not None and isinstance(view, Access):
            found.append(view.storage)
            view = view.vector_offset
    return found


def operations(nodes: Sequence[Node]) -> Iterator[Op]:
    """The operations of a body, those in loops included."""
    plain: Any = nodes
    return iter(plain) if _plain(nodes) else _operations(nodes)


def _operations(nodes: Sequence[Node]) -> Iterator[Op]:
    for node in nodes:
        if isinstance(node, Op):
            yield node
        else:
            yield from _operations(node.body)


def _plain(nodes: Iterable[Node]) -> bool:
    """Whether there are no loops among nodes."""
    return {Loop, While}.isdisjoint(map(type, nodes))


def walk(nodes: Iterable[Node]) -> Iterator[Node]:
    """Every node of a body, parents before their bodies.

    >>> import nki, nki.language as nl
    >>> def kernel(a):
    ...     for row in nl.affine_range(2):
    ...         nl.store(a[nl.ds(128 * row, 128), :], nl.load(a[nl.ds(128 * row, 128), :]))
    >>> traced = nki.jit(kernel).trace(nki.TensorSpec((256, 8), nl.float32))
    >>> [node.row.name for node in walk(traced.bodies[0])][:2]
    ['storage_begin', 'dma_copy']
    """
    for node in nodes:
        yield node
        if not isinstance(node, Op):
            yield from walk(node.body)
