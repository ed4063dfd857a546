"""Nests with one operand whose dimensions the result has in another order.

A transfer of such a nest would move few neighbours at a time, each run a descriptor. So boxes of
elements are loaded in runs as the source has them, put into another order on chip, and stored in
runs as the target has them. Either partitions keep what they have, and an engine copies elements of
each; or the tensor engine exchanges what lies along partitions, which passes elements on bit for
bit from gen3 on (SDK nki/api/nki.isa.rst#nki.isa.nc_transpose). Which dimensions lie along
partitions, and how much of each dimension a box has, is chosen by what it costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from graph_compiler.host_kernels.loops import LoopNest
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.nests.nest import Axis, axes_of
from graph_compiler.lower.sizes import BANK, BIT_FOR_BIT, PARTITIONS
from graph_compiler.schedule.steps import item_size
from isa.enums import Engine
from isa.target import Target

ROOM = 40 << 10
"""Bytes of a partition that a box may take, before and behind the change of order."""

_TURNED = frozenset({2, 4})
"""Bytes of elements that pass through the tensor engine."""

_SHARE = 0.6
"""The part of the copies that the busier of two engines does."""

_FIXED = 4000.0
"""About how many ns the first load and the last store take besides what is moved."""

TARGET, SOURCE = range(2)
"""Which strides of an axis are whose."""


class PermutedAxes(NamedTuple):
    """A nest's axes, with the strides of target and source, and the bytes of an element of each."""

    axes: tuple[Axis, ...]
    sizes: tuple[int, int]


class PermutationPlan(NamedTuple):
    """The dimensions along partitions when a box is loaded, and when it is stored; how much of each
    dimension a box has; and about how many ns all of it takes."""

    form: PermutedAxes
    loaded: tuple[int, ...]
    stored: tuple[int, ...]
    blocks: tuple[int, ...]
    ns: float

    @property
    def turns(self) -> bool:
        """Whether the tensor engine exchanges what lies along partitions."""
        return self.loaded != self.stored


class _Part(NamedTuple):
    """What partitions have of an axis: each so many neighbours, but for the last one, which may
    have fewer."""

    partitions: int
    neighbours: int
    last: int

    def having(self, neighbour: int) -> int:
        """Partitions that have a neighbour of this number."""
        return self.partitions - (neighbour >= self.last)


def part_of(block: int, room: int = PARTITIONS) -> _Part:
    """What so many partitions have of a block."""
    each = -(-block // room)
    return _Part(-(-block // each), each, block % each or each)


def parts_of(sizes: Sequence[int], group: Sequence[int]) -> list[_Part]:
    """What partitions have of the dimensions along them in a box: of two the first one may have
    neighbours."""
    outer, *inner = group
    taken = math.prod(sizes[place] for place in inner)
    return [
        part_of(sizes[outer], PARTITIONS // taken),
        *(_Part(sizes[place], 1, 1) for place in inner),
    ]


def partitions_of(sizes: Sequence[int], group: Sequence[int]) -> int:
    """How many partitions have something of a box."""
    return math.prod(part.partitions for part in parts_of(sizes, group))


def form_of(loop: LoopNest) -> PermutedAxes | None:
    """The form of a nest that changes the order of dimensions; None of any other."""
    if len(loop.leaves) != 1 or loop.fold is not None:
        return None
    axes = axes_of(loop.counts, [loop.output[1], loop.leaves[0][1]])
    if len(axes) < 2 or any(min(axis.strides) < 1 for axis in axes):
        return None
    if [*axes] == sorted(axes, key=lambda axis: -axis.strides[SOURCE]):
        return None
    return PermutedAxes(tuple(axes), (item_size(loop.output[0]), item_size(loop.leaves[0][0])))


class Permutation(NamedTuple):
    """Plans for all of a nest, where target and source of each begin, and about how many ns it
    takes in all."""

    plans: tuple[tuple[PermutationPlan, tuple[int, int]], ...]
    ns: float


def permutation_of(device: DeviceProgram, loop: LoopNest) -> Permutation | None:
    """What takes least for a nest; None of nests that have another form."""
    key = "permutation", loop
    if key not in device.plans:
        form = form_of(loop)
        device.plans[key] = None if form is None else _cheapest(device.target, form)
    return device.plans[key]


def _cheapest(target: Target, form: PermutedAxes) -> Permutation | None:
    plan = _best(target, form, _groups(form), _groups(form))
    if plan is None:
        return None
    found = Permutation(((plan, (0, 0)),), plan.ns)
    moved = math.prod(axis.count for axis in form.axes) * sum(form.sizes)
    if plan.ns <= _CLOSE * moved / target.dma_bytes_per_ns + _FIXED:
        return found
    for place, other in product(range(len(form.axes)), repeat=2):
        parts = PARTITIONS // form.axes[other].count
        if place == other or parts < 2 or form.axes[place].count < 2 * parts:
            continue
        split, rest, start = _split(form, place, parts)
        pair = [(place, other + (other > place))]
        others = _groups(split, PARTITIONS // 2)
        for loaded, stored in ((pair, others), (others, pair)):
            plan = _best(target, split, loaded, stored)
            if plan is None or plan.ns >= found.ns:
                continue
            plans, ns = [(plan, (0, 0))], plan.ns
            if rest is not None:
                few = _groups(rest, PARTITIONS // 2)
                left = _best(target, rest, few, few)
                if left is None:
                    continue
                plans.append((left, start))
                ns += left.ns - _FIXED
            if ns < found.ns:
                found = Permutation(tuple(plans), ns)
    return found


_CLOSE = 1.2
"""The part of what transfers take at the full rate up to which no other form is tried."""


def _split(
    form: PermutedAxes, place: int, parts: int
) -> tuple[PermutedAxes, PermutedAxes | None, tuple[int, int]]:
    """A form with a dimension in so many parts, what they leave of it, and where that begins."""
    axis = form.axes[place]
    inner, left = divmod(axis.count, parts)
    to, at = axis.strides
    outer = Axis(parts, (inner * to, inner * at))
    before, behind = form.axes[:place], form.axes[place + 1 :]
    split = PermutedAxes((*before, outer, Axis(inner, axis.strides), *behind), form.sizes)
    rest = PermutedAxes((*before, Axis(left, axis.strides), *behind), form.sizes) if left else None
    return split, rest, (parts * inner * to, parts * inner * at)


_Group = tuple[int, ...]
"""Dimensions along partitions: one, of which each partition may have neighbours, or two."""


def _groups(form: PermutedAxes, most_inside: float = math.inf) -> list[_Group]:
    """What may lie along partitions: what fills them well, if anything does. Of two dimensions the
    second one is no longer than `most_inside`."""
    places = range(len(form.axes))
    found: list[_Group] = [(place,) for place in places]
    found += [(one, other) for one, other in product(places, places) if one != other]
    most = max(_capacity(form, group) for group in found)
    return [group for group in found if 2 * _capacity(form, group) >= most]


def _capacity(form: PermutedAxes, group: _Group) -> int:
    """Partitions that dimensions fill."""
    outer, inner = (form.axes[group[0]].count, form.axes[group[1]].count if group[1:] else 1)
    return min(PARTITIONS, inner * outer)


def _best(
    target: Target, form: PermutedAxes, loaded: Sequence[_Group], stored: Sequence[_Group]
) -> PermutationPlan | None:
    """The plan that takes least, with one of these along partitions."""
    turning = target.generation >= BIT_FOR_BIT and form.sizes[TARGET] in _TURNED
    found = [
        plan
        for one, other in product(loaded, stored)
        if one == other or (turning and not {*one} & {*other})
        for plan in [_grown(target, form, one, other)]
        if plan is not None
    ]
    return min(found, key=lambda plan: plan.ns, default=None)


def _grown(
    target: Target, form: PermutedAxes, loaded: tuple[int, ...], stored: tuple[int, ...]
) -> PermutationPlan | None:
    """The plan with these dimensions along partitions: boxes grow as long as that saves time."""
    choices = []
    for place, axis in enumerate(form.axes):
        group = group_of(place, loaded, stored)
        if group is None:
            choices.append(_sizes(axis.count))
        elif len(group) == 1:
            choices.append(_multiples(axis.count) if loaded == stored else _sizes(axis.count))
        elif place == group[1]:
            choices.append(_sizes(min(axis.count, PARTITIONS // 2)))
        else:
            inner = min(form.axes[group[1]].count, PARTITIONS // 2)
            full = _sizes(min(PARTITIONS // inner, axis.count))
            choices.append(sorted({*_sizes(axis.count), *full}))
    at = [0] * len(choices)

    def tried(at: Sequence[int]) -> tuple[float, Sequence[int]]:
        blocks = tuple(sizes[number] for sizes, number in zip(choices, at))
        times = math.prod(-(-axis.count // size) for axis, size in zip(form.axes, blocks))
        return _cost(target, form, loaded, stored, [(times, blocks)]), at

    best = tried(at)
    while True:
        more = [
            tried([*at[:place], number, *at[place + 1 :]])
            for place, sizes in enumerate(choices)
            for number in range(at[place] + 1, min(at[place] + 4, len(sizes)))
        ]
        found = min(more, default=best)
        if found[0] >= best[0]:
            break
        best, at = found, [*found[1]]
    if math.isinf(best[0]):
        return None
    blocks = tuple(sizes[number] for sizes, number in zip(choices, at))
    ns = _cost(target, form, loaded, stored, _boxes(form, loaded, stored, blocks))
    return PermutationPlan(form, loaded, stored, blocks, ns)


def group_of(place: int, *groups: tuple[int, ...]) -> tuple[int, ...] | None:
    """The dimensions along partitions of which one is among."""
    return next((group for group in groups if place in group), None)


def _sizes(count: int) -> list[int]:
    """Sizes of blocks, all about alike: of parts of which there are ever more."""
    parts = 1
    found = {count}
    while parts < count:
        parts = max(parts + 1, parts * 3 // 2)
        found.add(-(-count // parts))
    return sorted(found)


def _multiples(count: int) -> list[int]:
    """Sizes of blocks along partitions: each has as many neighbours."""
    found = set()
    for size in [*_sizes(count), min(count, PARTITIONS)]:
        each = -(-size // PARTITIONS)
        wide = each * -(-size // each)
        found.add(_even(wide if wide <= count else size))
    return sorted(found)


def _even(size: int) -> int:
    """The most of a size of which partitions have as many neighbours each."""
    part = part_of(size)
    if part.last == part.neighbours:
        return size
    return _even(size - part.last)


def left_over(count: int, block: int, even: bool) -> list[int]:
    """Sizes of the boxes of what whole blocks leave of a dimension. `even`: where it is along
    partitions, and all of these have as many neighbours."""
    found, left = [], count % block
    while left:
        size = _even(left) if even else left
        found.append(size)
        left -= size
    return found


def _boxes(
    form: PermutedAxes, loaded: tuple[int, ...], stored: tuple[int, ...], blocks: Sequence[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Sizes of boxes, whole ones and those of what is left, and how many there are."""
    sides = []
    for place, (axis, block) in enumerate(zip(form.axes, blocks)):
        rest = [(1, size) for size in left_over(axis.count, block, loaded == stored == (place,))]
        sides.append([(axis.count // block, block), *rest])
    for side in product(*sides):
        yield math.prod(times for times, _ in side), tuple(size for _, size in side)


def _cost(
    target: Target,
    form: PermutedAxes,
    loaded: tuple[int, ...],
    stored: tuple[int, ...],
    boxes: Iterable[tuple[int, tuple[int, ...]]],
) -> float:
    """About how many ns boxes take, so many of each size; infinite where they have no room."""
    transfers = triggers = tensor = copies = 0.0
    turns = loaded != stored
    clock, fast = (target.clock_ghz(engine) for engine in (Engine.vector, Engine.tensor))
    largest = longest = 0.0  # transfers of a box, and work between them
    for times, sizes in boxes:
        elements = math.prod(sizes)
        moved = 0.0
        widths = []
        for whose, group in ((SOURCE, loaded), (TARGET, stored)):
            parts = parts_of(sizes, group)
            uneven = any(part.last < part.neighbours for part in parts)
            if uneven and not turns and len(group) > 1:
                return math.inf
            partitions = math.prod(part.partitions for part in parts)
            rest = elements // math.prod(sizes[place] for place in group)
            rest *= math.prod(part.neighbours for part in parts)
            triggers += times * (1 + uneven)
            if rest * form.sizes[whose] > ROOM:
                return math.inf
            widths.append((partitions, rest))
            moved += _transfer_ns(target, form, sizes, group, whose)
        transfers += times * moved
        (rows, width), (columns, kept) = widths
        if turns:
            passes = 2 if form.sizes[TARGET] == 4 else 1
            many = -(-width // columns)
            banks = -(-many * rows * form.sizes[TARGET] // BANK)
            turned = many * passes * max(64, rows, columns) / fast
            copied = _SHARE * (kept + 70 * banks) / clock
        else:
            turned, copied = 0.0, _SHARE * (width + 70) / clock
        tensor += times * turned
        copies += times * copied
        largest, longest = max(largest, moved), max(longest, turned, copied)
    triggers *= target.dma_trigger_static_ns.value / 2
    return max(transfers + longest, max(tensor, copies) + largest, triggers) + _FIXED


def _transfer_ns(
    target: Target, form: PermutedAxes, sizes: Sequence[int], group: Sequence[int], whose: int
) -> float:
    """What a transfer of a box takes."""
    dims = free_dimensions(form, sizes, group, whose)
    run, total = 1, math.prod(count for _, count, _ in dims)
    for stride, count, _ in reversed(dims):
        if stride != run:
            break
        run *= count
    partitions = partitions_of(sizes, group)
    size = form.sizes[whose]
    engines = -(-partitions * target.dma_engines.value // PARTITIONS)
    rate = target.dma_run_bytes_per_ns(run * size) if whose == SOURCE else None
    each = run * size / (rate or target.dma_bytes_per_ns_per_engine.value)
    return partitions * (total // run) / engines * (target.dma_descriptor_ns.value + each)


def free_dimensions(
    form: PermutedAxes, sizes: Sequence[int], group: Sequence[int], whose: int
) -> list[tuple[int, int, int]]:
    """The free dimensions of a box with some along partitions, as the source or the target has
    them in memory, those of several elements: stride, count, and the axis."""
    found = []
    shared = dict(zip(group, parts_of(sizes, group)))
    for place, (axis, size) in enumerate(zip(form.axes, sizes)):
        if place in shared:
            size = shared[place].neighbours
        if size > 1:
            found.append((axis.strides[whose], size, place))
    return sorted(found, key=lambda dim: -dim[0])
