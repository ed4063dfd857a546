"""A convolution of images with few features: rows of pixels as they lie in memory.

Features that are few fill neither partitions nor transfers. So partitions have rows of an image,
each with all of its pixels, which are one run in memory, and the rows below it that the window
needs: as many as `shifts` says. The tensor engine turns the pixels of a few columns of results
[rows, elements] into [elements, rows]. They are multiplied by the kernel's elements, with zeros
where a column does not reach a pixel: several columns of results are one product then, and what
partitions hold is all that a window has of these rows. Results have rows along partitions, so that
a row of them is one run, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from graph_compiler.lower.nests.nest import engines_of, even, numbers
from graph_compiler.lower.nests.operands import StoredOperand
from graph_compiler.lower.products.bands import (
    COLUMNS,
    INSTRUCTIONS,
    inside,
    product_cycles,
    reach,
    turning_passes,
)
from graph_compiler.lower.products.results import OUTPUT, Cells, ConvolutionResults, Sums, unit
from graph_compiler.lower.sizes import BANK, DTYPES, PARTITIONS
from graph_compiler.schedule.steps import item_size, place_of
from isa.dtypes import DTYPES as DTYPE_ROWS
from isa.enums import Engine, Memory
from isa.target import Target
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram
    from graph_compiler.lower.products.convolution import ConvolutionStep
    from graph_compiler.lower.products.finite import NotFinite
    from graph_compiler.lower.products.images import Images

STORED = 8 << 10
"""Bytes of a partition that a transfer of results has."""


FIXED = 60
"""About how many cycles an operation of the vector engine takes beside its elements."""


@dataclass(frozen=True, slots=True)
class StripPlan:
    """`together`: columns of results of one product; `shifts`: rows of the window that partitions
    hold; `pace`: rows of an image from one row that is turned to the next one; `images`, `rows`:
    results of a tile; `transposed`: rows of each image that they are computed from; `ns`: about how
    long it takes; `ready`: how long the first tile of an image is loaded, which `ns` leaves out."""

    together: int
    shifts: int
    pace: int
    images: int
    rows: int
    transposed: int
    ns: float
    ready: float = 0.0


def plan_of(step: ConvolutionStep, target: Target) -> StripPlan | None:
    """The fastest plan; None of images that have no rows of neighbouring pixels, and of windows
    that are too large."""
    features, (down, across) = step.image.dims[3], step.windows
    _, _, column, feature = step.image.strides
    by_pixel = feature == 1 and column == features
    if down.spread > 1 or across.spread > 1 or not (by_pixel or column == 1):
        return None
    if step.target.dims[3] > COLUMNS:
        return None
    found: StripPlan | None = None
    for shifts in range(1, down.size + 1):
        for together in range(1, min(step.target.dims[2], COLUMNS // step.target.dims[3]) + 1):
            if shifts * reach(together, across) * features > PARTITIONS:
                break
            plan = _plan(step, target, together, shifts)
            if plan is not None and (found is None or plan.ns < found.ns):
                found = plan
    return found


def _plan(step: ConvolutionStep, target: Target, together: int, shifts: int) -> StripPlan | None:
    """A plan and its price: products, what they wait for, and turning rows."""
    batch, rows, columns, outputs = step.target.dims
    down = step.windows[0]
    groups = -(-down.size // shifts)
    below = shifts * down.dilation
    pace = down.stride if below % down.stride == 0 or groups == 1 else 1

    def transposed_of(rows: int) -> int:
        return ((rows - 1) * down.stride + (groups - 1) * below) // pace + 1

    most = next(
        (n for n in range(min(rows, PARTITIONS), 0, -1) if transposed_of(n) <= PARTITIONS), 0
    )
    if not most:
        return None
    own = even(rows, most)
    transposed = transposed_of(own)
    images = min(batch, PARTITIONS // transposed) if own == rows else 1
    tiles = -(-batch // images) * -(-rows // own) * -(-columns // together)
    size, width = item_size(step.image.type), together * outputs
    products = tiles * groups * product_cycles(target, images * own, width, size)
    turns = tiles * images * transposed
    copied = (turns + tiles * width) / 2  # by two engines
    vector = target.clock_ghz(Engine.vector)
    _, wide, features, _ = step.kernel.dims
    ready = 0.0  # about half of it is hidden by loads
    if step.kernel.strides[3] != 1 and outputs > 1:
        laid = shifts * (groups * features * wide + FIXED) + groups * (outputs + FIXED)
        ready = together * laid / vector / 2
    planes = step.target.strides[3] != 1 and outputs > 1
    stored = max(1, STORED // (size * width)) * together if planes else columns * outputs
    run = min(stored, columns * outputs) * size
    each = run / target.dma_run_bytes_per_ns(run) + target.dma_descriptor_ns.value
    stores = batch * rows * columns * outputs * size / run * each
    stores /= engines_of(images * own, target)
    tensor = (products + turning_passes(size, target) * turns) / target.clock_ghz(Engine.tensor)
    return StripPlan(
        together,
        shifts,
        pace,
        images,
        own,
        transposed,
        ready + max(tensor, copied / vector, stores),
    )


class Strips:
    """A convolution by such a plan, ready to be emitted."""

    def __init__(self, device: DeviceProgram, step: ConvolutionStep, plan: StripPlan) -> None:
        self.device = device
        self.step = step
        self.plan = plan
        self.dtype = DTYPES[step.type]
        self.size = item_size(step.type)
        self.down, self.across = step.windows
        self.batch, self.rows, self.columns, self.outputs = step.target.dims
        self.image, self.kernel = (
            StoredOperand(device, place_of(view), view.type) for view in (step.image, step.kernel)
        )
        self.results = ConvolutionResults(device, step.target, step.following)
        self.seen: NotFinite | None = None
        features = step.image.dims[3]
        # Runs of a row: all features of its pixels, or the pixels of a feature each.
        by_pixel = step.image.strides[3] == 1 or features == 1
        self.runs, self.unit = (1, features) if by_pixel else (features, 1)
        self.window = reach(plan.together, self.across) * self.unit
        self.blocks = -(-self.columns // plan.together)
        self.wide = reach(self.blocks * plan.together, self.across)
        self.groups = -(-self.down.size // plan.shifts)
        self.rows_of_outputs = step.target.strides[3] == 1 or self.outputs == 1

    @property
    def depth(self) -> int:
        """Partitions that products sum over."""
        return self.plan.shifts * self.runs * self.window

    @property
    def products(self) -> int:
        """Products of a tile of rows."""
        return self.blocks * self.groups

    @property
    def by_zeros(self) -> bool:
        """Whether it multiplies elements by zeros: for columns that do not see them, between
        places of the window, or below its last row."""
        plan = self.plan
        dense = plan.together == self.across.dilation == 1
        return not dense or plan.shifts * self.groups != self.down.size

    def watch(self, seen: NotFinite) -> None:
        """Have something look at pixels."""
        self.seen = seen

    def without_zeros(self) -> Images:
        """The same by a plan that does not."""
        from graph_compiler.lower.products.images import Images

        return Images(self.device, self.step, exact=True)

    def emit(self) -> None:
        plan = self.plan
        kernel = cache(self._kernel)
        whole, left = divmod(self.batch, plan.images)
        straight = max(1, INSTRUCTIONS // (self.products * -(-self.rows // plan.rows)))
        if whole > straight:
            kernel()
            self.results.load_rows(0, self.outputs, False)
        for number in numbers(self.device.builder, whole, straight):
            self._images(number * plan.images, plan.images, kernel)
        if left:
            self._images(whole * plan.images, left, kernel)

    def _images(self, image: Any, images: int, kernel: Callable[[], Any]) -> None:
        for row in range(0, self.rows, self.plan.rows):
            rows = min(self.plan.rows, self.rows - row)
            self._tile(image, images, row, rows, kernel)

    def _tile(
        self, image: Any, images: int, row: int, rows: int, kernel: Callable[[], Any]
    ) -> None:
        """Some rows of results of some images."""
        plan = self.plan
        loaded = self._loaded(image, images, row)
        if self.seen is not None:
            self.seen.look(loaded)
        weights = kernel()
        transposed = self._transposed(loaded)
        size = max(DTYPE_ROWS[dtype].size for dtype in self.results.dtypes().values())
        most = max(1, STORED // (size * self.outputs * plan.together)) * plan.together
        for first in range(0, self.columns, most):
            columns = min(most, self.columns - first)
            lines = [(unit(0), images), (unit(1), rows)]
            free = [(unit(2), columns), (unit(OUTPUT), self.outputs)]
            if not self.rows_of_outputs:
                free.reverse()
            cells = Cells((image, row, first, 0), lines, free)
            parts = self._sums(transposed, weights, (images, rows), (first, columns))
            self.results.keep(parts, cells)

    def _loaded(self, image: Any, images: int, row: int) -> NkiTensor:
        """[rows, shifts, runs, elements] of the rows that results from a row on are computed
        from, edges included."""
        device, plan, strides = self.device, self.plan, self.step.image.strides
        high, line = self.step.image.dims[1], self.wide * self.unit
        tile = device.tile((images * plan.transposed, plan.shifts, self.runs, line), self.dtype)
        columns = inside(0, self.wide, self.step.image.dims[2], self.across)
        top = [
            row * self.down.stride + shift * self.down.dilation - self.down.before
            for shift in range(plan.shifts)
        ]
        last = plan.pace * (plan.transposed - 1)
        if columns.number < self.wide or min(top) < 0 or max(top) + last >= high:
            device.builder.emit("memset", dst=tile, value=0.0, engine=Engine.gpsimd)
        place = slice(columns.to * self.unit, (columns.to + columns.number) * self.unit)
        for shift, begin in enumerate(top):
            low = max(0, -(begin // plan.pace))
            end = min(plan.transposed, (high - 1 - begin) // plan.pace + 1)
            if low >= end or not columns.number:
                continue
            for number in range(images):
                first = number * plan.transposed
                pattern = [
                    (strides[1] * plan.pace, end - low),
                    *([(strides[3], self.runs)] if self.runs > 1 else []),
                    (1, columns.number * self.unit),
                ]
                start = (image + number) * strides[0] + (begin + low * plan.pace) * strides[1]
                source = self.image.elements(pattern, start + columns.first * strides[2])
                device.copy(tile[first + low : first + end, shift, :, place], source)
        return tile

    def _transposed(self, loaded: NkiTensor) -> NkiTensor:
        """[elements, blocks of columns, rows]: what products of each block sum over."""
        device, rows = self.device, loaded.shape[0]
        tile = device.tile((self.depth, self.blocks, rows), self.dtype)
        most = max(1, BANK // (rows * self.size))
        pitch, shift, run, _ = loaded.strides
        step = self.plan.together * self.across.stride * self.unit
        chosen = [[shift, self.plan.shifts], [run, self.runs], [1, self.window]]
        pairs = [[pitch, rows], *([n, count] for n, count in chosen if count > 1)]
        pairs = pairs if len(pairs) > 1 else [*pairs, [1, 1]]
        for start in range(0, self.blocks, most):
            several = min(most, self.blocks - start)
            bank = device.tile((self.depth, several, rows), self.dtype, Memory.psum)
            for number in range(several):
                view = loaded.ap(pairs, (start + number) * step)
                place = bank[:, number, :]
                device.transpose(place, view)
            place = tile[:, start : start + several, :]
            device.builder.emit("tensor_copy", dst=place, src=bank)
        return tile

    def _kernel(self) -> Any:
        """[elements, groups of rows of the window, outputs of each column of a block]: the kernel's
        elements where a column of results takes a pixel, else zeros."""
        device, plan, strides = self.device, self.plan, self.step.kernel.strides
        features, outputs = self.step.image.dims[3], self.outputs
        tile = device.tile((self.depth, self.groups, plan.together * outputs), self.dtype)
        if strides[3] != 1 and outputs > 1:
            for start in range(0, outputs, PARTITIONS):
                self._transposed_kernel(tile, start, min(PARTITIONS, outputs - start))
            return tile
        device.builder.emit("memset", dst=tile, value=0.0, engine=Engine.gpsimd)
        across = self.across
        dense = strides[1] == features * strides[2] and self.runs == 1
        for shift in range(plan.shifts):
            count = -(-(self.down.size - shift) // plan.shifts)
            lines = [(plan.shifts * strides[0], count), (strides[3], outputs)]
            for column in range(plan.together):
                place = slice(column * outputs, (column + 1) * outputs)
                for begin, size, step, offset in self._pieces(dense):
                    first = shift * self.runs * self.window + begin
                    first += column * across.stride * self.unit
                    source = self.kernel.elements(
                        [(step, size), *lines], shift * strides[0] + offset
                    )
                    device.copy(tile[first : first + size, :count, place], source)
        return tile

    def _transposed_kernel(self, tile: NkiTensor, start: int, count: int) -> None:
        """The same for some outputs of a kernel in whose memory outputs come first: laid out with
        outputs along partitions, and turned."""
        device, plan, strides = self.device, self.plan, self.step.kernel.strides
        high, wide, features, _ = self.step.kernel.dims
        sizes = {0: high, 1: wide, 2: features}
        order = sorted(sizes, key=lambda axis: -strides[axis])
        loaded = device.tile((count, *(sizes[axis] for axis in order)), self.dtype)
        pattern = [(strides[3], count), *((strides[axis], sizes[axis]) for axis in order)]
        device.copy(loaded, self.kernel.elements(pattern, start * strides[3]))
        own = {axis: loaded.strides[1 + at] for at, axis in enumerate(order)}
        shape = count, self.groups, plan.together, self.depth
        laid = device.tile(shape, self.dtype)
        device.builder.emit("memset", dst=laid, value=0.0, engine=Engine.gpsimd)
        pitch, group, column, _ = laid.strides
        # Elements of a pixel's features, and of neighbouring pixels, in a row of the window.
        near, far = (1, self.unit) if self.runs == 1 else (self.window, 1)
        for shift in range(plan.shifts):
            rows = -(-(high - shift) // plan.shifts)
            for place in range(plan.together):
                begin = shift * self.runs * self.window
                begin += place * (column + self.across.stride * self.unit)
                target = [
                    [pitch, count],
                    [group, rows],
                    [near, features],
                    [far * self.across.dilation, wide],
                ]
                source = [
                    [loaded.strides[0], count],
                    [plan.shifts * own[0], rows],
                    [own[2], features],
                    [own[1], wide],
                ]
                device.builder.emit(
                    "tensor_copy",
                    dst=laid.ap(target, begin),
                    src=loaded.ap(source, shift * own[0]),
                )
        for number in range(self.groups):
            for place in range(plan.together):
                bank = device.tile((self.depth, count), self.dtype, Memory.psum)
                view = laid[:, number, place, :]
                device.transpose(bank, view)
                begin = place * self.outputs + start
                target_view = tile[:, number, begin : begin + count]
                device.builder.emit("tensor_copy", dst=target_view, src=bank)

    def _pieces(self, dense: bool) -> Iterator[tuple[int, int, int, int]]:
        """Elements of a row of the window that are neighbours, in the order of partitions: where
        they begin there, how many, and in the kernel how far apart, from which element on."""
        wide = self.across.size
        strides, features = self.step.kernel.strides, self.step.image.dims[3]
        if dense and self.across.dilation == 1:
            yield 0, wide * features, strides[2], 0
        elif self.runs == 1:
            for place in range(wide):
                begin = place * self.across.dilation * self.unit
                yield begin, features, strides[2], place * strides[1]
        elif self.across.dilation == 1:
            for feature in range(features):
                yield feature * self.window, wide, strides[1], feature * strides[2]
        else:
            for feature in range(features):
                for place in range(wide):
                    begin = feature * self.window + place * self.across.dilation
                    yield begin, 1, strides[1], feature * strides[2] + place * strides[1]

    def _sums(
        self,
        transposed: NkiTensor,
        weights: NkiTensor,
        lines: tuple[int, int],
        chosen: tuple[int, int],
    ) -> Iterator[Sums]:
        """Results of some columns, block by block, in PSUM: [rows, columns, outputs]."""
        device, plan = self.device, self.plan
        (images, rows), (first, columns) = lines, chosen
        pitch, block, _ = transposed.strides
        step = self.down.stride // plan.pace
        below = plan.shifts * self.down.dilation // plan.pace
        pairs = [[pitch, self.depth], [plan.transposed, images], [step, rows]]
        kept = [pair for at, pair in enumerate(pairs) if not at or pair[1] > 1]
        kept = kept if len(kept) > 1 else [*kept, [1, 1]]
        for begin in range(first, first + columns, plan.together):
            count = min(plan.together, first + columns - begin)
            shape = images * rows, count, self.outputs
            total = device.tile(shape, "float32", Memory.psum)
            for group in range(self.groups):
                start = begin // plan.together * block + group * below
                device.builder.emit(
                    "nc_matmul",
                    dst=total.reshape((shape[0], count * self.outputs)),
                    stationary=transposed.ap(kept, start),
                    moving=weights[:, group, : count * self.outputs],
                )
            place = slice(begin - first, begin - first + count), slice(0, self.outputs)
            if self.rows_of_outputs:
                yield total, place
            else:
                yield total.permute((0, 2, 1)), place[::-1]
