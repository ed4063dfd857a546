"""Private or shared HBM for each buffer of a graph on two cores.

- A buffer that one core uses is private to that core.
- A buffer is split into two private ones where each core uses a part of its own, and both use it
  only between the same two barriers.
- All other buffers are shared.

A core's part of a split or shared buffer becomes a buffer that begins where the part begins. So
neighbouring steps number their rows alike and can be fused (`graph_compiler.lower.groups`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from graph_compiler.lower.aliases import every
from graph_compiler.lower.control.counted import reads_of
from graph_compiler.lower.control.flow import Barrier, Counted
from graph_compiler.lower.cores.extents import touches
from graph_compiler.lower.products.convolution import ConvolutionStep
from graph_compiler.lower.products.product import Contraction
from graph_compiler.schedule.steps import KernelCall, Place, item_size
from graph_compiler.schedule.views import Buffer, View

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram

Segment = tuple[int, ...]
"""Steps with no barrier between them: how many barriers were before, in each block around."""


class Settled(NamedTuple):
    """The steps of one core, and how often they read each buffer; once more what others may."""

    steps: list[Any]
    uses: Counter[Buffer]


def settled(
    device: DeviceProgram,
    steps: Sequence[list[Any]],
    windows: Mapping[Buffer, Buffer],
    results: Collection[Buffer],
) -> list[Settled]:
    """The steps of each core with the buffers that they use in the end, whose cores the device is
    told. `windows`: buffers that are parts of others."""
    return _Settling(device, windows, results).run(steps)


class _Settling:
    def __init__(
        self, device: DeviceProgram, windows: Mapping[Buffer, Buffer], results: Collection[Buffer]
    ) -> None:
        self.device = device
        self.windows = windows
        # Buffers that keep their names: not all of their users are steps that can be changed.
        self.kept = {*windows, *windows.values()}
        self.results = results
        self.spans: dict[Buffer, dict[Segment, dict[int, tuple[int, int]]]] = {}
        self.names: dict[tuple[int, Segment, Buffer], Place] = {}

    def run(self, steps: Sequence[list[Any]]) -> list[Settled]:
        for core, own in enumerate(steps):
            for segment, step in _walk(own):
                self._note(core, segment, step)
        for buffer in self.spans:
            self._name(buffer)
        renamed = [self._renamed(core, own, ()) for core, own in enumerate(steps)]
        used = [_used(own, self.windows, self.device.parts) for own in renamed]
        for buffer in set().union(*used):
            cores = [core for core, own in enumerate(used) if buffer in own]
            self.device.homes[buffer] = cores[0] if len(cores) == 1 else None
        common = [buffer for buffer, core in self.device.homes.items() if core is None]
        return [Settled(own, reads_of(own) + Counter(common)) for own in renamed]

    def _note(self, core: int, segment: Segment, step: Any) -> None:
        if not isinstance(step, (KernelCall, Contraction, ConvolutionStep)):
            self.kept.update(touch.buffer for touch in touches(step, {}))
            return
        for buffer, extent, _ in touches(step, {}):
            by_core = self.spans.setdefault(buffer, {}).setdefault(segment, {})
            first, last = by_core.get(core, (extent.first, extent.last))
            by_core[core] = min(first, extent.first), max(last, extent.last)

    def _name(self, buffer: Buffer) -> None:
        """What each core calls a buffer in each segment, where that is not its own name."""
        if buffer in self.kept or buffer.kind == "constant":
            return
        segments = self.spans[buffer]
        both = [segment for segment, cores in segments.items() if len(cores) > 1]
        own = len(segments) == 1 and buffer.kind == "arena" and buffer not in self.results
        size = item_size(self.device.type_of(buffer))
        for segment in both:
            for core, (first, last) in segments[segment].items():
                first -= first % size
                last = min(last, buffer.size)
                last += -last % size
                if own:
                    name = self.device.like(buffer, last - first)
                elif first:
                    name = Buffer(last - first, "part")
                    self.device.parts[name] = Place(buffer, first)
                else:
                    continue
                self.names[core, segment, buffer] = Place(name, first)

    def _renamed(self, core: int, steps: list[Any], around: Segment) -> list[Any]:
        found: list[Any] = []
        for segment, step in _numbered(steps, around):
            changed = step
            if isinstance(step, Counted):
                changed = replace(step, body=self._renamed(core, step.body, segment))
            elif isinstance(step, (KernelCall, Contraction, ConvolutionStep)):
                names = {
                    buffer: self.names[core, segment, buffer]
                    for buffer in {*step.reads, *step.writes}
                    if (core, segment, buffer) in self.names
                }
                if names:
                    changed = _with_names(step, names)
            self.device.same_place(step, [changed])
            found.append(changed)
        return found


def _numbered(steps: list[Any], around: Segment) -> Iterator[tuple[Segment, Any]]:
    """The steps with their segments; a loop with the number of its body."""
    number = 0
    for step in steps:
        if isinstance(step, Barrier):
            number += 1
        inside = (number, id(step.count)) if isinstance(step, Counted) else (number,)
        yield (*around, *inside), step


def _walk(steps: list[Any], around: Segment = ()) -> Iterator[tuple[Segment, Any]]:
    """The steps, those inside of counted loops instead of the loops, with their segments."""
    for segment, step in _numbered(steps, around):
        if isinstance(step, Counted):
            yield from _walk(step.body, segment)
        else:
            yield segment, step


def _used(
    steps: list[Any], windows: Mapping[Buffer, Buffer], parts: Mapping[Buffer, Place]
) -> set[Buffer]:
    """The buffers that steps use, and those that these are parts of."""
    found = {buffer for step in every(steps) for buffer in (*step.reads, *step.writes)}
    found |= {parts[buffer].buffer for buffer in found if buffer in parts}
    return found | {windows[buffer] for buffer in found if buffer in windows}


def _call(call: KernelCall, names: Mapping[Buffer, Place]) -> KernelCall:
    words = [
        Place(names[word.buffer].buffer, word.offset - names[word.buffer].offset)
        if isinstance(word, Place) and word.buffer in names
        else word
        for word in call.words
    ]
    reads, writes = (
        [names[buffer].buffer if buffer in names else buffer for buffer in buffers]
        for buffers in (call.reads, call.writes)
    )
    return KernelCall(call.kernel, words, reads, writes)


def _with_names(step: Any, names: Mapping[Buffer, Place]) -> Any:
    """A step on the buffers as its core calls them."""
    if isinstance(step, KernelCall):
        return _call(step, names)
    if isinstance(step, ConvolutionStep):
        return step.renamed(lambda view: _view(view, names))
    return _contraction(step, names)


def _contraction(step: Contraction, names: Mapping[Buffer, Place]) -> Contraction:
    product = step.product
    left, right, target = (
        _view(view, names) for view in (product.left, product.right, step.target)
    )
    return replace(step, product=product.changed(left, right), target=target)


def _view(view: View, names: Mapping[Buffer, Place]) -> View:
    place = names.get(view.buffer)
    if place is None:
        return view
    offset = view.offset - place.offset // item_size(view.type)
    return View(place.buffer, view.type, view.dims, view.strides, offset)
