"""Loops whose iterations share nothing but engines: what their bodies say about copies that pay.

With one copy an iteration takes a tensor's place when the iteration before is done with it. With n
copies n iterations are under way in that time. So where all of them together leave the busiest
engine idle while one of them holds a tensor, each further copy pays, and none needs to be timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from operator import le
from typing import Any

from isa.enums import Memory
from isa.operations.control import StorageBegin
from isa.target import Target
from nki.ir.begins import begun
from nki.ir.nodes import Access, Loop, Node, Op, Tensor, storages, tensors_of
from nki.passes.analysis.footprint import box_of, may_overlap
from nki.passes.order.modelled import Modelled
from nki.passes.order.schedule import Timing, busy_ns, costs_of

IDLE = 1.1
"""How much longer than the busiest engine computes for all iterations under way one of them must
hold a tensor: near that, their order decides how much of them overlaps."""


class Independent:
    """A loop whose iterations share nothing but engines: its operations `ops`, what these take
    (`timings`), and the tensors `begun` in it. `ends` has by operation when its results are there
    for others."""

    def __init__(self, ops: list[Op], begun: set[Tensor], target: Target) -> None:
        self.ops = ops
        self.begun = begun
        self.target = target
        self.timings = list(map(costs_of(target).of_operation, ops))
        self.ends = [_alone(timing) + target.semaphore_ns.value for timing in self.timings]

    def most_copies_pay(self, most: int) -> bool:
        """Whether `most` copies certainly pay, by what its operations take."""
        wanted = IDLE * most * _busiest(self.timings, self.target)
        if sum(self.ends) <= wanted or not _fit(self.ops, self.begun, most, self.target):
            return False
        return _held(self.ops, self.begun, self.ends) >= wanted

    def with_one_copy(self, trips: int) -> Modelled | None:
        """How long some trips take with one copy, where one tensor is held from the first operation
        to the last, each of which follows the one before; else None."""
        held = _held(self.ops, self.begun, self.ends)
        if held < sum(self.ends) or not _fit(self.ops, self.begun, 1, self.target):
            return None
        busiest = trips * max(busy_ns(self.timings))
        return Modelled(trips * (held - self.target.semaphore_ns.value), busiest, 0.0)


def independent(node: Loop, body: Sequence[Node], target: Target) -> Independent | None:
    """The loop with a body, if its iterations share nothing but engines."""
    ops = [one for one in body if isinstance(one, Op) and one.row is not StorageBegin]
    own = set(begun(body))
    if len(ops) + len(own) < len(body) or not _share_nothing(node, ops, own):
        return None
    return Independent(ops, own, target)


def _share_nothing(node: Loop, ops: Sequence[Op], begun: set[Tensor]) -> bool:
    """Whether no operation follows one of the iteration before: what they write begins in the
    iteration, or is stored each time in another place, and not read."""
    if any(op.after or op.row.register_writes or op.row.minimum_cores > 1 for op in ops):
        return False
    stores = [view for op in ops for view in op.written if view.storage not in begun]
    read = {tensor for op in ops for tensor in storages([op.values[at] for at in op.row.reads])}
    if any(view.storage.memory.on_chip or view.storage in read for view in stores):
        return False
    boxes = [(view.storage, box_of(view, frozenset({node.variable}))) for view in stores]
    return all(tensor.memory.on_chip for tensor in begun) and not any(
        one is other and may_overlap(box.later(node.variable, -node.step), now)
        for (one, box), (other, now) in product(boxes, repeat=2)
    )


def _alone(timing: Timing) -> float:
    """When the results of an operation are there, where no engine is busy."""
    now = done = 0.0
    for _, interval, completion, transfer, _ in timing:
        done = max(done, now + (interval + sum(transfer) if transfer else completion))
        now += interval
    return done


def _busiest(timings: Sequence[Timing], target: Target) -> float:
    """How long the busiest engine is busy with an iteration, activation tables included: copies
    that take turns load each table as often as one copy does."""
    busy = busy_ns(timings)
    steps = [step for timing in timings for step in timing if step[-1] is not None]
    for step, other in zip(steps, [*steps[1:], *steps[:1]]):
        if step[-1] != other[-1]:
            busy[other[0]] += target.activation_table_load_ns.value
    return max(busy)


def _fit(ops: Sequence[Op], begun: set[Tensor], most: int, target: Target) -> bool:
    """Whether there is room for all copies at once, beside what they use from outside."""
    units = {Memory.sbuf: 1, Memory.psum: target.psum_bank_bytes.value}
    sizes = dict.fromkeys(units, 0)
    for tensor in {tensor for op in ops for tensor in tensors_of(op)}:
        if tensor.memory.on_chip:
            if type(tensor.row_bytes) is not int or tensor.address is not None:
                return False
            unit, copies = units[tensor.memory], most if tensor in begun else 1
            sizes[tensor.memory] += copies * -(-tensor.row_bytes // unit) * unit
    room = target.sbuf_bytes_per_partition.value, target.psum_bytes_per_partition.value
    return all(map(le, sizes.values(), room))


def _held(ops: Sequence[Op], begun: set[Tensor], ends: Sequence[float]) -> float:
    """How long an iteration holds the tensor whose uses are farthest apart, at least: from the
    beginning of the first one to the end of the last one, over operations each of which reads just
    the view that one before has written."""
    uses: dict[Tensor, list[int]] = {}
    for number, op in enumerate(ops):
        for tensor in begun.intersection(tensors_of(op)):
            uses.setdefault(tensor, []).append(number)
    spans = [(own[0], own[-1]) for own in uses.values()]
    first, last = max(spans, key=lambda span: span[1] - span[0], default=(0, 0))
    over: dict[Any, float] = {}
    held = 0.0
    for number in range(first, last + 1):
        op = ops[number]
        begins = [over[view] for view in map(_elements, op.read) if view in over]
        if begins or number == first:
            held = max(begins, default=0.0) + ends[number]
            over.update(dict.fromkeys(map(_elements, op.written), held))
    return held if begins or first == last else 0.0


def _elements(view: Access) -> Any:
    """Equal for views of the same elements, where these are known."""
    if type(view.offset) is int and view.vector_offset is None:
        return view.storage, view.dtype, view.offset, view.shape, view.strides
    return view
