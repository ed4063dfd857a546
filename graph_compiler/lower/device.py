"""The target of emission: a kernel's builder, and the graph's buffers as tensors in HBM."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from graph_compiler.lower.limits import PlanLimits
from graph_compiler.lower.notes import LoweringNotes
from graph_compiler.lower.participants import ranks_of
from graph_compiler.lower.places import location_of, name_of
from graph_compiler.lower.sizes import BIT_FOR_BIT, DTYPES
from graph_compiler.schedule.steps import GraphProgram, KernelCall, Machine, Place, item_size
from graph_compiler.schedule.views import Buffer, View, count_of, row_major
from isa.alu import ALU
from isa.dtypes import DTYPES as DTYPE_ROWS
from isa.enums import DgeMode, Engine, Memory
from nki.ir.builder.builder import Builder
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Module
    from graph_compiler.lower.control.counted import ArrayPart
    from graph_compiler.lower.groups.moments import Squares
    from graph_compiler.lower.movement.narrow_sorts import Span
    from graph_compiler.lower.products.computed_operands import ComputedOperand
    from graph_compiler.lower.rewrites.trips import Count
    from graph_compiler.schedule.nodes import Node
    from isa.program import SourceLocation
    from isa.target import Target

HELD = 64 << 10
"""Bytes of a partition that rows of values may take which later steps read."""


@dataclass
class HeldRows:
    """The rows of a buffer in tiles [rows, elements], all but the last of them full: `step`
    elements each, of a type. `transposed`: parts of them with rows and elements exchanged, by a key
    of those who made them."""

    tiles: list[NkiTensor]
    step: int
    type: str
    depth: int
    """Of loops around, within which what is made of the tiles is known."""
    transposed: dict[Any, list[NkiTensor]] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Bytes of a partition."""
        others = sum(
            math.prod(tile.shape[1:]) * DTYPE_ROWS[tile.dtype].size
            for tiles in self.transposed.values()
            for tile in tiles
        )
        return len(self.tiles) * self.step * item_size(self.type) + others


ALIGNMENT = 64
"""Bytes: parameters of a family begin at multiples."""

Pattern = Sequence[tuple[Any, int]]
"""(stride in elements, count) of each dimension."""


def _in_bf16(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Three bf16 numbers for each fp32 number, as [parts, numbers], whose sum is the number; None
    where some number has none."""
    parts, rest = [], data
    with np.errstate(all="ignore"):
        for _ in range(_PARTS):
            parts.append(rest.astype(ml_dtypes.bfloat16))
            rest = rest - parts[-1].astype(np.float32)
    return None if rest.any() else np.stack(parts)


_PARTS = 3
"""bf16 numbers that have the 24 bits of an fp32 number."""


_HALVES = "bfloat16"
"""As what halves of four bytes pass through the tensor engine."""


def _halves(tile: NkiTensor) -> list[NkiTensor]:
    """The low and the high halves of a tile's elements."""
    pattern = [[2 * stride, count] for stride, count in zip(tile.strides, tile.shape)]
    return [tile.ap(pattern, half, dtype=_HALVES) for half in range(2)]


def kernel_of(step: Any) -> Any:
    """The kernel of a call; other steps are their own."""
    return step.kernel if isinstance(step, KernelCall) else step


class _Builder(Builder):
    """A builder that calls `before_loop` when a loop on the device begins."""

    before_loop: Callable[[], None]

    @contextmanager
    def loop(self, *bounds: Any, **options: Any) -> Iterator[Any]:
        self.before_loop()
        with super().loop(*bounds, **options) as variable:
            yield variable


class DeviceProgram(GraphProgram):
    """Steps for a NeuronCore, and the builder of the kernel that they become.

    Every buffer is one tensor in HBM, of the type as which it was made, or a parameter.
    """

    def __init__(
        self, machine: Machine, target: Target, module: Module, limits: PlanLimits, cores: int = 1
    ) -> None:
        super().__init__(machine)
        self.limits = limits
        self.module = module
        self.ranks = ranks_of(module)
        self.builder: Builder = _Builder(target, cores, module.name)
        for core in range(cores):
            builder = self.builder.on(core)
            assert isinstance(builder, _Builder)
            builder.before_loop = self.forget
        self.target = target
        self.saturates = False
        self.notes = LoweringNotes()
        self.first_of_steps: set[Any] = set()  # the first node of tile IR of each
        self._types: dict[Buffer, str] = {}
        self._tensors: dict[Buffer, NkiTensor] = {}
        self._flat: dict[tuple[Buffer, str], NkiTensor] = {}
        self._declared = False
        self._meeting: NkiTensor | None = None
        self._stacked: dict[Node, Place] = {}
        self.plans: dict[Any, Any] = {}
        self.uses: Counter[Buffer] = Counter()
        self._held: dict[Buffer, HeldRows] = {}
        # What the core's products compute where they load it (`computed_operands`).
        self.computed: dict[Buffer, ComputedOperand] = {}
        # What is known of loops while their bodies are scheduled (`counted`).
        self.counts: dict[Node, Count] = {}
        self.places: dict[Node, np.ndarray[Any, Any]] = {}
        self.in_place: set[Node] = set()
        self.windows: dict[Buffer, ArrayPart] = {}
        # What several cores have: where parts of buffers begin, and the core that alone uses one,
        # None where several do (`homes`).
        self.parts: dict[Buffer, Place] = {}
        self.homes: dict[Buffer, int | None] = {}
        # By the number of a step's kernel, which is kept beside, so that it is no other's.
        self._places: dict[int, tuple[Any, SourceLocation]] = {}
        # Values that are computed in their own order, and the order of products in memory (`kept`).
        self.row_major: set[Node] = set()
        self.orders: dict[Node, tuple[int, ...]] = {}
        # Loops so far, and what of their carried values is in memory only (`flow.NotOnChip`).
        self.loops = 0
        self.stored_between_trips: set[tuple[int, int]] = set()
        # The tiles in which a loop around carries rows of buffers.
        self.carried: dict[Buffer, HeldRows] = {}
        # Sums of squares for variances (`moments`), and the nodes that kernels are for, by number.
        self.squares: dict[Node, Squares] = {}
        self.sorts: dict[Node, Span] = {}  # of which few elements are read
        # Of choices by masks that are known, how many columns each row sees (`masks`).
        self.visible: dict[Node, np.ndarray[Any, Any]] = {}
        self._nodes: dict[int, Node] = {}
        self._in_parts: dict[Buffer, tuple[Buffer, tuple[int, ...]] | None] = {}

    def transpose(self, target: NkiTensor, source: NkiTensor) -> None:
        """Have the tensor engine turn a tile, into PSUM; where it `saturates`, with the largest
        numbers instead of infinities (SDK nki/api/nki.isa.rst#nki.isa.nc_transpose). Words of four
        bytes are two halves where bits pass as they are: the array loads halves fast."""
        for dst, data in self.transposes(target, source):
            self.builder.emit("nc_transpose", dst=dst, data=data, engine=Engine.tensor)

    def transposes(self, target: NkiTensor, source: NkiTensor) -> list[tuple[NkiTensor, NkiTensor]]:
        """What the tensor engine turns, and into what, for `transpose`."""
        row = DTYPE_ROWS[source.dtype]
        if self.saturates and row.has_infinity:
            whole, source = source, self.tile(source.shape, source.dtype)
            self.builder.emit(
                "tensor_scalar",
                dst=source,
                data=whole,
                op0=ALU["minimum"],
                operand0=row.largest,
                op1=ALU["maximum"],
                operand1=row.lowest,
            )
        if self.turned_as(source.dtype) != source.dtype:
            return list(zip(_halves(target), _halves(source)))
        return [(target, source)]

    def turned_as(self, dtype: str) -> str:
        """The dtype that the tensor engine turns words of a dtype as."""
        bits = self.target.generation >= BIT_FOR_BIT
        halves = bits and DTYPE_ROWS[dtype].size == 2 * DTYPE_ROWS[_HALVES].size
        return _HALVES if halves else dtype

    def made_for(self, node: Node, steps: list[Any]) -> None:
        kernels = [kernel_of(step) for step in steps]
        new = [kernel for kernel in kernels if id(kernel) not in self._places]
        if new and node.instruction is not None:
            place = location_of(node.instruction, self.builder.declarations.name)
            self._places.update({id(kernel): (kernel, place) for kernel in new})
            self._nodes.update({id(kernel): node for kernel in new})

    def keeps(self, node: Node) -> bool:
        return node in self.row_major

    def product_result(self, node: Node) -> View:
        order = self.orders.get(node)
        if order is None:
            return super().product_result(node)
        dims = tuple(node.dims[axis] for axis in order)
        strides = dict(zip(order, row_major(dims)))
        view = self.buffer(node.type, dims)
        return view.placed(node.dims, tuple(strides[axis] for axis in range(len(dims))))

    def same_place(self, step: Any, others: Iterable[Any]) -> None:
        """Other steps are for the instruction of the graph that a step is for."""
        place = self.place_in_graph(kernel_of(step))
        if place is None:
            return
        node = self.node_of(kernel_of(step))
        for other in others:
            kernel = kernel_of(other)
            self._places.setdefault(id(kernel), (kernel, place))
            if node is not None:
                self._nodes.setdefault(id(kernel), node)

    def node_of(self, kernel: Any) -> Node | None:
        """The node of the graph that a step, or the kernel of a call, is for."""
        return self._nodes.get(id(kernel))

    def place_in_graph(self, kernel: Any) -> SourceLocation | None:
        """Which instruction of the graph a step, or the kernel of a call, is for."""
        return self._places.get(id(kernel), (None, None))[1]

    def remark(self, kernel: Any, schedule: str) -> None:
        """A step, or the kernel of a call, has a generic schedule."""
        place = self.place_in_graph(kernel)
        self.notes.remark("" if place is None else name_of(place.text), schedule)

    def buffer(self, type: str, dims: tuple[int, ...]) -> View:
        view = super().buffer(type, dims)
        self._types[view.buffer] = type
        if self._declared:
            self._tensor(view.buffer, type)
        return view

    def constant(self, array: np.ndarray[Any, Any]) -> Buffer:
        buffer = super().constant(array)
        if buffer not in self._tensors and array.size:
            flat = np.ascontiguousarray(array).reshape(-1)
            if flat.dtype == np.bool_:
                flat = flat.view(np.uint8)
            self._tensors[buffer] = self.builder.constant(flat, f"constant{buffer.number}")
        return buffer

    def stack(self, families: Iterable[Sequence[Node]]) -> None:
        """Have the parameters of each family lie one behind another."""
        for number, members in enumerate(families):
            size, count = item_size(members[0].type), count_of(members[0].dims)
            distance = -(-count * size // ALIGNMENT) * ALIGNMENT // size
            view = self.buffer(members[0].type, (distance * len(members),))
            view.buffer.kind = "input"
            self._tensors[view.buffer] = self.builder.tensor(
                view.dims, DTYPES[view.type], Memory.shared_hbm, f"family{number}"
            )
            for place, node in enumerate(members):
                self._stacked[node] = Place(view.buffer, place * distance * size)

    def parameter(self, type: str, dims: tuple[int, ...], name: str, node: Node) -> View:
        """The graph's next parameter; one without elements is none of the kernel's."""
        stacked = self._stacked.get(node)
        if stacked is not None:
            around = self._tensors[stacked.buffer]
            shape, dtype = dims or (1,), DTYPES[type]
            self.builder.parameter(shape, dtype, name, within=around, offset=stacked.offset)
            offset = stacked.offset // item_size(type)
            return View(stacked.buffer, type, dims, row_major(dims), offset)
        view = self.buffer(type, dims)
        view.buffer.kind = "input"
        if view.buffer.size:
            self._tensors[view.buffer] = self.builder.parameter(dims or (1,), DTYPES[type], name)
        return view

    def result(self, view: View) -> None:
        """The graph's next result: a buffer of its own, whole, or a parameter that it updates."""
        if view.buffer.kind == "input":
            return
        shape = view.dims or (1,)
        tensor = self.builder.tensor(shape, DTYPES[view.type], Memory.shared_hbm, "result")
        self._tensors[view.buffer] = tensor

    def type_of(self, buffer: Buffer) -> str:
        """The type as which a buffer was made."""
        return self._types[buffer]

    def like(self, buffer: Buffer, size: int) -> Buffer:
        """New memory of so many bytes, of the type of a buffer."""
        new = Buffer(size)
        self._types[new] = self._types[buffer]
        return new

    def discard(self, buffer: Buffer) -> None:
        """No step uses a buffer any more."""
        del self._types[buffer]

    def declare(self) -> None:
        """Make tensors of all buffers that there are now: what loops carry is made before them."""
        self._declared = True
        if self.builder.cores > 1:
            memory = Memory.shared_hbm
            self._meeting = self.builder.tensor((1,), "int32", memory, "meeting")
        for buffer, type in self._types.items():
            if buffer.size and type in DTYPES:  # others are scratch of the host's
                self._tensor(buffer, type)

    def returned(self, view: View) -> None:
        """The kernel returns what `result` made."""
        self.builder.result(self._tensors[view.buffer])

    def elements(self, place: Place, type: str, pattern: Pattern, offset: Any = 0) -> NkiTensor:
        """Elements of HBM from `offset` elements behind a place on."""
        buffer, start = self._found(place, item_size(type))
        return self._tensor(buffer, type).ap([list(pair) for pair in pattern], start + offset)

    def in_parts(self, place: Place, count: int) -> NkiTensor | None:
        """Elements of an fp32 constant as bf16 numbers whose sums they are, [parts, count]. None of
        what is no such constant, or has no such parts."""
        buffer, start = self._found(place, item_size("f32"))
        if buffer not in self._in_parts:
            known = buffer.kind == "constant"
            data = self.constants[buffer.number].reshape(-1) if known else np.empty(0)
            parts = _in_bf16(data) if data.dtype == np.float32 else None
            self._in_parts[buffer] = None if parts is None else (self.constant(parts), parts.shape)
        found = self._in_parts[buffer]
        if found is None:
            return None
        constant, (several, distance) = found
        return self._tensor(constant, "bf16").ap([[distance, several], [1, count]], start)

    def _found(self, place: Place, size: int) -> tuple[Buffer, Any]:
        """The array in which a place is, and how many elements of a size are before it."""
        buffer = place.buffer
        start: Any = place.offset // size
        while buffer in self.windows or buffer in self.parts:
            if buffer in self.parts:
                buffer, distance = self.parts[buffer]
                start = start + distance // size
                continue
            window = self.windows[buffer]
            start = start + window.base // size + window.count.variable * (window.step // size)
            buffer = window.array.buffer
        return buffer, start

    def root(self, buffer: Buffer) -> Buffer:
        """The array of which a buffer is a window or a part, or the buffer itself."""
        while buffer in self.windows or buffer in self.parts:
            part = self.parts.get(buffer)
            buffer = self.windows[buffer].array.buffer if part is None else part.buffer
        return buffer

    def _tensor(self, buffer: Buffer, type: str) -> NkiTensor:
        """A buffer as elements of a type, in one dimension."""
        found = self._flat.get((buffer, type))
        if found is not None:
            return found
        tensor = self._tensors.get(buffer)
        if tensor is None:
            own = self._types[buffer]
            count = buffer.size // item_size(own)
            home = self.homes.get(buffer, self.builder.core)
            memory = Memory.shared_hbm if home is None else Memory.private_hbm
            builder = self.builder.on(home or 0)
            tensor = builder.tensor((count,), DTYPES[own], memory, "value")
            self._tensors[buffer] = tensor
        flat = tensor.ap([[1, count_of(tensor.shape)]], 0)
        self._flat[buffer, type] = flat if flat.dtype == DTYPES[type] else flat.view(DTYPES[type])
        return self._flat[buffer, type]

    def known(self, place: Place, type: str) -> Any:
        """The number at a place, where that is a constant; None elsewhere."""
        if place.buffer.kind != "constant":
            return None
        data = self.constants[place.buffer.number].reshape(-1)
        return data[place.offset // item_size(type)].item()

    # Values that stay on chip from step to step, besides being in HBM. None outlives the beginning
    # of a loop on the device, whose tiles take turns in the room.

    def hold(self, buffer: Buffer, tiles: list[NkiTensor], step: int, type: str) -> None:
        """Remember that tiles have all of a buffer, row by row; older ones are forgotten."""
        self._held.pop(buffer, None)
        self._held[buffer] = HeldRows(tiles, step, type, self.builder.depth)
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        taken = [held.bytes for held in self._held.values()]
        while sum(taken) > HELD:
            del self._held[next(iter(self._held))], taken[0]

    def held_rows(self, buffer: Buffer, step: int, type: str) -> list[NkiTensor]:
        """The tiles that have a buffer's rows; none where it is not on chip in this form."""
        held = self._held.get(buffer)
        return [] if held is None or (held.step, held.type) != (step, type) else held.tiles

    def holds(self, buffer: Buffer) -> bool:
        """Whether rows of a buffer are on chip."""
        return buffer in self._held

    def transposed(self, buffer: Buffer, part: Any) -> list[NkiTensor] | None:
        """What `keep_transposed` was given for a part of a buffer that is held."""
        held = self._held.get(buffer)
        return None if held is None else held.transposed.get(part)

    def keep_transposed(self, buffer: Buffer, part: Any, tiles: list[NkiTensor]) -> None:
        """Remember a part of a buffer that is held with rows and elements exchanged."""
        held = self._held.get(buffer)
        if held is not None and held.depth == self.builder.depth:
            held.transposed[part] = tiles
            self._forget_oldest()

    def forget(self, buffers: Iterable[Buffer] | None = None) -> None:
        """Buffers get other values; without any, all of them may."""
        if buffers is None:
            for operand in self.computed.values():
                operand.kept.clear()
        for buffer in list(self._held if buffers is None else buffers):
            self._held.pop(buffer, None)

    # Cores

    @contextmanager
    def on(self, core: int) -> Iterator[None]:
        """What is emitted inside is for one core."""
        before = self.builder
        self.builder = before.on(core)
        self.forget()
        self.computed = {}
        try:
            with self.builder.at(None):
                yield
        finally:
            self.builder = before

    def meet(self) -> None:
        """A core waits for the others; their accesses to memory of all cores are in order."""
        cores = tuple(range(self.builder.cores))
        self.builder.emit("core_barrier", data=self._meeting, cores=cores)

    # Operations

    def copy(self, dst: NkiTensor, src: NkiTensor) -> None:
        """A transfer by DMA. Where the hardware can write the descriptors of a load it does, which
        takes as long as starting one whose descriptors are prepared, and lets two engines do so."""
        hardware = bool(self.target.hwdge_blocks.value) and dst.dtype == src.dtype
        load = dst.on_chip and not src.on_chip and src.vector_offset is None
        straight = not self.builder.depth  # loops are unrolled by what their own transfers cost
        mode = DgeMode.hwdge if hardware and load and straight else DgeMode.unknown
        self.builder.emit("dma_copy", dst=dst, src=src, dge_mode=mode)

    def load(
        self, tile: NkiTensor, place: Place, type: str, pattern: Pattern, offset: Any = 0
    ) -> None:
        """Have a tile contain elements of HBM, or what is computed instead of them."""
        operand = self.computed.get(place.buffer)
        if operand is None:
            self.copy(tile, self.elements(place, type, pattern, offset))
        else:
            operand.load(tile, pattern, place.offset // item_size(type) + offset)

    def sources(self, buffers: Iterable[Buffer]) -> Iterator[Buffer]:
        """What is read for buffers: they themselves, or what they are computed of."""
        for buffer in buffers:
            operand = self.computed.get(buffer)
            yield from [buffer] if operand is None else operand.sources

    def tile(self, shape: Sequence[int], dtype: str, memory: Memory = Memory.sbuf) -> NkiTensor:
        """A new tile on chip."""
        return self.builder.tensor(tuple(shape), dtype, memory, "tile")
