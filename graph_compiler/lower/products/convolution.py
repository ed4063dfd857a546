"""Convolutions of images, as steps of their own.

The image stays where it is: its edges, gaps between its elements and the places of the window are
made on chip (`lower/images.py`), in whichever order memory has batch, space and features.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from graph_compiler.hlo.operators.convolution import places_of
from graph_compiler.lower.products.product import MULTIPLIED
from graph_compiler.lower.sizes import PARTITIONS
from graph_compiler.schedule import convolutions
from graph_compiler.schedule.fusion import ElementExpression, Lazy, materialised, store
from graph_compiler.schedule.steps import item_size
from graph_compiler.schedule.views import Buffer, View, row_major
from isa.enums import Engine

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram
    from graph_compiler.lower.products.results import FollowingNest
    from graph_compiler.lower.products.strips import StripPlan
    from graph_compiler.schedule.nodes import Node
    from graph_compiler.schedule.schedule import Scheduler
    from isa.target import Target

POSITIONS = 128
"""Places of a window up to which it is one."""


@dataclass(frozen=True, slots=True)
class SpatialDimension:
    """One dimension of space: places of the kernel, from one result to the next, from one place to
    the next, elements in front, and from one element of the image to the next."""

    size: int = 1
    stride: int = 1
    dilation: int = 1
    before: int = 0
    spread: int = 1


@dataclass(frozen=True, slots=True)
class ConvolutionStep:
    """A step: an image [batch, rows, columns, features], a kernel [rows, columns, features of a
    group, outputs], and the target [batch, rows, columns, outputs]."""

    image: View
    kernel: View
    target: View
    windows: tuple[SpatialDimension, SpatialDimension]
    following: tuple[FollowingNest, ...] = ()
    """Nests that take results where they are, on chip (`results`)."""
    groups: int = 1
    """Each has as many of the features, and of the outputs, which are of these features alone."""
    narrowed: str | None = None
    """The type that pixels are converted to when they are loaded (`patches`)."""

    inner: ClassVar[tuple[Any, ...]] = ()

    @property
    def views(self) -> list[View]:
        """What is read and written."""
        return [self.image, self.kernel, self.target]

    @property
    def type(self) -> str:
        """What products are of."""
        return self.narrowed or self.image.type

    @property
    def reads(self) -> list[Buffer]:
        own = [self.image.buffer, self.kernel.buffer]
        return own + [buffer for stage in self.following for buffer in stage.call.reads]

    @property
    def writes(self) -> list[Buffer]:
        return [self.target.buffer] + [b for stage in self.following for b in stage.call.writes]

    @property
    def pixels_first(self) -> bool:
        """Whether results lie with their outputs as neighbours."""
        _, _, across, outputs = self.target.strides
        return outputs == 1 or (across != 1 and self.target.dims[3] == 1)

    def emit(self, device: DeviceProgram) -> None:
        from graph_compiler.lower.products.finite import emit_right
        from graph_compiler.lower.products.grouped import GroupedImages

        if self.groups > 1:
            emit_right(device, GroupedImages(device, self))
            return
        for step in self.phases():
            step._emit(device)

    def _emit(self, device: DeviceProgram) -> None:
        """Emit it by the plan that takes the least time."""
        from graph_compiler.lower.products.finite import emit_right
        from graph_compiler.lower.products.images import Images
        from graph_compiler.lower.products.patches import Patches
        from graph_compiler.lower.products.strips import Strips, plan_of

        found: list[tuple[float, Images | Strips]] = []
        patches = self.patches(device.target)
        if patches is not None:
            found.append((patches.ns, Patches(device, self, patches)))
        others = self.places <= POSITIONS and self.narrowed is None
        for step in self.of_fewer_elements() if others else ():
            images, plan = Images(device, step), plan_of(step, device.target)
            found.append((images.ns, images))
            if plan is not None:
                found.append((plan.ns, Strips(device, step, plan)))
        emit_right(device, min(found, key=itemgetter(0))[1])

    @property
    def places(self) -> int:
        """Places of the window."""
        return math.prod(self.kernel.dims[:2])

    def phases(self) -> Iterator[ConvolutionStep]:
        """The same in parts, where the image's elements lie apart: each has those results whose
        windows see elements at the same places, and these places alone."""
        ways = [_phases_of(window) for window in self.windows]
        if all(len(way) == 1 for way in ways):
            yield self
            return
        for down, across in product(*ways):
            firsts, paces = ((0, down.first, across.first, 0), (1, down.pace, across.pace, 1))
            target = _every(self.target, firsts, paces)
            if min(target.dims) < 1:
                continue
            places, apart = (down.place, across.place, 0, 0), (down.pace, across.pace, 1, 1)
            yield replace(
                self,
                kernel=_every(self.kernel, places, apart),
                target=target,
                windows=(down.window, across.window),
                following=tuple(stage.of_every(paces, firsts) for stage in self.following),
            )

    def patches(self, target: Target) -> StripPlan | None:
        """How to compute it where its windows lie side by side; None of others."""
        from graph_compiler.lower.products.patches import plan_of

        return plan_of(self, target) if self.groups == 1 else None

    def is_of_patches(self, target: Target) -> bool:
        """Whether windows lie side by side, and it pays to compute it so."""
        from graph_compiler.lower.products.patches import pays

        return pays(self.patches(target))

    def of_fewer_elements(self) -> Iterator[ConvolutionStep]:
        """The same, and the same of those rows, or rows and columns, of the image that results are
        computed from, where these are every second one, or fewer."""
        image, (down, across) = self.image, self.windows
        yield self
        if _pace(down) > 1:
            image, down = _chosen(image, 1, down)
            yield replace(self, image=image, windows=(down, across))
        if _pace(across) > 1 and image.strides[2] > 1:
            image, across = _chosen(image, 2, across)
            yield replace(self, image=image, windows=(down, across))

    def ns(self, device: DeviceProgram) -> float:
        """About how long the tensor engine takes, or the transfers."""
        from graph_compiler.lower.products.grouped import GroupedShape

        batch, rows, columns, outputs = self.target.dims
        target, size = device.target, item_size(self.type)
        moved = sum(math.prod(view.dims) * item_size(view.type) for view in self.views)
        transfers = moved / target.dma_bytes_per_ns
        if self.groups > 1:
            places, features = math.prod(self.kernel.dims[:2]), self.kernel.dims[2]
            pixels, own = batch * rows * columns, outputs // self.groups
            shape = GroupedShape(self.groups, features, own, places, pixels, size)
            return max(shape.ns(target), transfers)
        apart = math.prod(_phases_of(window)[0].pace for window in self.windows)
        depth = math.prod(self.kernel.dims[:3]) // apart
        pixels = batch * rows * columns
        tiles = -(-depth // PARTITIONS)
        if self.pixels_first:
            cycles = tiles * -(-pixels // PARTITIONS) * outputs
        else:
            cycles = tiles * -(-outputs // PARTITIONS) * pixels
        cycles *= target.fp32_matmul_passes.value if size == 4 else 1
        return max(cycles / target.clock_ghz(Engine.tensor), transfers)

    def halves(self) -> Iterator[tuple[ConvolutionStep, ConvolutionStep]]:
        """In two along the batch, and along the outputs; of groups along rows instead, as these
        take as long however few they are."""
        for axis in (0, 3) if self.groups == 1 else (0, 1):
            count = self.target.dims[axis]
            if count > 1:
                half = (count + 1) // 2
                parts = ((0, half), (half, count - half))
                one, other = (self._of(axis, *part) for part in parts)
                yield one, other

    def _of(self, axis: int, start: int, size: int) -> ConvolutionStep:
        """Some elements of the batch, some rows, or some outputs."""
        target = _part(self.target, axis, start, size)
        if axis == 0:
            return replace(self, image=_part(self.image, axis, start, size), target=target)
        if axis == 1:
            down, across = self.windows
            down = replace(down, before=down.before - start * down.stride)
            return replace(self, target=target, windows=(down, across))
        return replace(self, kernel=_part(self.kernel, axis, start, size), target=target)

    def by_group(self) -> Iterator[ConvolutionStep]:
        """A step for each group."""
        features, outputs = self.kernel.dims[2], self.target.dims[3] // self.groups
        for number in range(self.groups):
            image = _part(self.image, 3, number * features, features)
            kernel, target = (
                _part(view, 3, number * outputs, outputs) for view in (self.kernel, self.target)
            )
            yield replace(self, image=image, kernel=kernel, target=target, groups=1)

    def renamed(self, change: Any) -> ConvolutionStep:
        """The step on other views, one for each."""
        return replace(
            self, image=change(self.image), kernel=change(self.kernel), target=change(self.target)
        )


class _Phase(NamedTuple):
    """Every `pace`-th result of a dimension from `first` on, which is of every such place of the
    window from `place` on, as a window of its own over an image without gaps."""

    window: SpatialDimension
    first: int = 0
    place: int = 0
    pace: int = 1


def _phases_of(window: SpatialDimension) -> list[_Phase]:
    """A dimension in phases, of which each has places of the window; whole where there are none."""
    pace = window.spread
    alike = window.stride == 1 and math.gcd(pace, window.dilation) == 1
    if pace == 1 or not alike or window.size < pace:
        return [_Phase(window)]
    found = []
    for first in range(pace):
        distances = (first + place * window.dilation - window.before for place in range(pace))
        place, distance = next((i, n) for i, n in enumerate(distances) if n % pace == 0)
        size = -(-(window.size - place) // pace)
        own = SpatialDimension(size, 1, window.dilation, -distance // pace)
        found.append(_Phase(own, first, place, pace))
    return found


def _every(view: View, first: Sequence[int], paces: Sequence[int]) -> View:
    """Every so many elements of each dimension, from some on."""
    dims = tuple(-(-(n - a) // pace) for n, a, pace in zip(view.dims, first, paces))
    strides = tuple(step * pace for step, pace in zip(view.strides, paces))
    offset = sum(a * step for a, step in zip(first, view.strides))
    return view.placed(dims, strides, offset)


def _part(view: View, axis: int, start: int, size: int) -> View:
    dims = (*view.dims[:axis], size, *view.dims[axis + 1 :])
    return view.placed(dims, view.strides, start * view.strides[axis])


def convolution(scheduler: Scheduler, node: Node) -> Lazy | None:
    """A convolution of floats; as a product where it is one of matrices that lie as they are, or
    its windows are large; as element-wise work where it has groups of one feature and few of
    them."""
    found = _convolution(scheduler, node)
    return convolutions.convolution(scheduler, node) if found is None else found


def _convolution(scheduler: Scheduler, node: Node) -> View | None:
    from graph_compiler.lower.products.grouped import GroupedShape
    from graph_compiler.lower.products.patches import narrows

    item = node.instruction
    assert item is not None
    image, kernel = node.operands
    types = (image.type, kernel.type, node.type)
    if not set(types) <= MULTIPLIED or 0 in (*image.dims, *kernel.dims, *node.dims):
        return None
    if (item.attribute("batch_group_count") or 1) > 1:
        return None
    groups = item.attribute("feature_group_count") or 1
    places = places_of(item.attribute("convolution_dimension_numbers"))
    window = item.attribute("window")
    parts = () if window is None else window.dimensions
    sizes = [part.size for part in parts]
    edges = [edge for part in parts for edge in (part.padding_low, part.padding_high)]
    if not 1 <= len(parts) <= 2 or min(edges) < 0:
        return None
    features = image.dims[places["input"][1]] // groups
    outputs = node.dims[places["output"][1]] // groups
    large = max(features, outputs) > PARTITIONS // 2
    apart = not any(edges) and all(part.stride >= part.size for part in parts) and groups == 1
    grouped = groups > 1 and not large
    if math.prod(sizes) > POSITIONS and not apart and not grouped:
        return None
    plain = math.prod(sizes) == 1 and not any(edges) and groups == 1
    plain = plain and all(part.stride == 1 and (part.base_dilation or 1) == 1 for part in parts)
    if plain and places["input"][1] == len(image.dims) - 1:
        return None
    program: Any = scheduler.program
    if grouped:
        pixels = math.prod(node.dims) // node.dims[places["output"][1]]
        shape = GroupedShape(
            groups, features, outputs, math.prod(sizes), pixels, item_size(image.type)
        )
        if not shape.pays(program.target):
            return None
    values = scheduler.value(image), scheduler.value(kernel)
    left, right, _ = program.machine.products.operands(*values, False)
    many = math.prod(sizes) > POSITIONS and not grouped
    wide = _narrowed_source(left) if many else None
    order = [places["input"][0], *places["input"][2:], places["input"][1]]
    x = _pixels(scheduler, left, order) if wide is None else _square(wide, order)
    k = _ascending(scheduler, right)
    for axis, part in zip(places["kernel"][2:], parts):
        if part.window_reversal:
            k = _ascending(scheduler, _transposed(k, axis))
    k = _square(k, [*places["kernel"][2:], places["kernel"][1], places["kernel"][0]], lead=False)
    whole = program.buffer(node.type, node.dims)
    target = _square(whole, [places["output"][0], *places["output"][2:], places["output"][1]])
    windows = [
        SpatialDimension(
            p.size, p.stride, p.window_dilation or 1, p.padding_low, p.base_dilation or 1
        )
        for p in parts
    ]
    if len(windows) == 1:
        windows.insert(0, SpatialDimension())
    step = ConvolutionStep(x, k, target, (windows[0], windows[1]), groups=groups)
    if wide is not None:
        step = replace(step, narrowed=left.type)
        if not narrows(step, program.target):
            step = replace(step, image=_pixels(scheduler, left, order), narrowed=None)
    if many and not step.is_of_patches(program.target):
        return None
    steps: list[Any] = [*step.by_group()] if groups > 1 and large else [step]
    program.steps += steps
    return whole


def _pixels(scheduler: Scheduler, value: Lazy, order: Sequence[int]) -> View:
    """An image in memory, its dimensions in an order, with neighbours along columns or features."""
    x = _square(_ascending(scheduler, value), order)
    return x if 1 in x.strides[2:] else _stored(scheduler, x)


def _narrowed_source(value: Lazy) -> View | None:
    """What is in memory in fp32, of which an operand is a narrower conversion."""
    if not isinstance(value, ElementExpression) or value.op not in _CONVERSIONS:
        return None
    (source,) = value.arguments
    if not isinstance(source, View) or min(source.strides, default=0) < 0:
        return None
    return source if source.type == "f32" and value.type in MULTIPLIED else None


_CONVERSIONS = frozenset({"convert"})


def _pace(window: SpatialDimension) -> int:
    """From one element that results are computed from to the next one."""
    if window.spread > 1:
        return 1
    return window.stride if window.size == 1 else math.gcd(window.stride, window.dilation)


def _chosen(image: View, axis: int, window: SpatialDimension) -> tuple[View, SpatialDimension]:
    """Elements of a dimension of space that results are computed from."""
    pace = _pace(window)
    first = -window.before % pace
    count = image.dims[axis] - first
    if count < 1:
        return image, window
    dims, strides = list(image.dims), list(image.strides)
    dims[axis], strides[axis] = -(-count // pace), strides[axis] * pace
    chosen = image.placed(tuple(dims), tuple(strides), first * image.strides[axis])
    before = (window.before + first) // pace
    dilation = max(1, window.dilation // pace)
    own = replace(window, stride=window.stride // pace, dilation=dilation, before=before)
    return chosen, own


def _ascending(scheduler: Scheduler, value: Lazy) -> View:
    """A value in memory whose elements go up."""
    view = materialised(scheduler.program, value)
    return _stored(scheduler, view) if min(view.strides, default=0) < 0 else view


def _stored(scheduler: Scheduler, view: View) -> View:
    target = scheduler.program.buffer(view.type, view.dims)
    store(scheduler.program, view, target)
    return target


def _transposed(view: View, axis: int) -> View:
    """A dimension backwards."""
    strides = tuple(-step if at == axis else step for at, step in enumerate(view.strides))
    return view.placed(view.dims, strides, (view.dims[axis] - 1) * view.strides[axis])


def _square(view: View, order: Sequence[int], lead: bool = True) -> View:
    """Dimensions in another order, with two of space."""
    dims = [view.dims[axis] for axis in order]
    strides = [view.strides[axis] for axis in order]
    if len(dims) == 3:
        place = 1 if lead else 0
        dims.insert(place, 1)
        strides.insert(place, row_major(dims)[place])
    return view.placed(tuple(dims), tuple(strides))
