"""Collectives as exchanges of blocks between ranks (`isa.machine.ranks.RankExchange`).

Each collective is a graph of HLO text in which two private custom calls stand for what the device
does: `rank-exchange`, blocks that ranks send one behind the other, and `rank-number`, a number of a
list by rank. Reductions fold in the order of the group, in fp32 if the type is narrower, and round
once. A large all-reduce exchanges parts, folds them, and gathers the sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graph_compiler.hlo.operators.collectives.groups import group_of, group_size
from graph_compiler.hlo.operators.custom.shard_map import checked_shardings
from graph_compiler.hlo.operators.folding import binary_opcode
from graph_compiler.hlo.operators.row import subject
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.lower.expansions.expansions import Text, braces, expanded
from graph_compiler.lower.participants import TO_GLOBAL, TO_LOCAL, Member, members_of
from graph_compiler.lower.sizes import DTYPES
from graph_compiler.lower.steps import FillStep, MoveStep
from graph_compiler.schedule.fusion import contiguous
from graph_compiler.schedule.steps import place_of
from isa.errors import NeuronError

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.hlo.operators.custom.shard_map import Sharding
    from graph_compiler.lower.device import DeviceProgram
    from graph_compiler.schedule.nodes import Node
    from graph_compiler.schedule.schedule import Scheduler
    from graph_compiler.schedule.views import View

EXCHANGE, NUMBER = "rank-exchange", "rank-number"
"""Targets of the private custom calls."""

_MOST_ENTRIES = 1 << 18
"""Of the table of an exchange."""

_LARGE = 1 << 16
"""Elements of an all-reduce from which on parts of it are exchanged, and not all of it."""

Table = list[list[int]]
"""For each rank those that its blocks come from; -1 for a block of zeros."""


@dataclass(frozen=True)
class Exchanged(MoveStep):
    """An exchange between ranks, of memory in row-major order."""

    sources: tuple[int, ...]
    width: int
    parted: bool

    def emit(self, device: DeviceProgram) -> None:
        device.builder.emit(
            "rank_exchange",
            dst=_flat(device, self.target),
            src=_flat(device, self.source),
            sources=self.sources,
            width=self.width,
            parted=self.parted,
        )


@dataclass(frozen=True)
class Numbered(FillStep):
    """A number from a list, by rank."""

    numbers: tuple[int, ...]

    def emit(self, device: DeviceProgram) -> None:
        device.builder.emit("rank_number", dst=_flat(device, self.target), numbers=self.numbers)


def _flat(device: DeviceProgram, view: View) -> Any:
    return device.elements(place_of(view), view.type, [(1, math.prod(view.dims))])


def exchanged(scheduler: Scheduler, node: Node) -> Any:
    """The private custom calls as steps; None for other targets."""
    item = node.instruction
    assert item is not None
    target = item.attribute("custom_call_target")
    if target not in (EXCHANGE, NUMBER) or node.type not in DTYPES:
        return None
    device: Any = scheduler.program
    given = [int(word) for word in bytes(item.attribute("backend_config")).split()]
    view = device.buffer(node.type, node.dims)
    if target == NUMBER:
        device.steps.append(Numbered(view, tuple(given)))
        return view
    width, parted, *sources = given
    source = contiguous(device, scheduler.value(node.operands[0]))
    device.steps.append(Exchanged(view, source, tuple(sources), width, bool(parted)))
    return view


class RankText(Text):
    """A computation with exchanges between ranks."""

    def exchange(self, name: str, table: Table, parted: bool = False) -> str:
        """[width, block]: what ranks send. `parted`: of the parts [width, block] of an array."""
        width, dims = len(table[0]), self.dims(name)
        made = [width, *(dims[1:] if parted else dims)]
        if all(row == [rank] for rank, row in enumerate(table)):
            return self.reshape(name, made)
        config = " ".join(map(str, [width, int(parted), *(s for row in table for s in row)]))
        return self._private(self.type(name), made, EXCHANGE, [name], config)

    def number_of_rank(self, type: str, numbers: Sequence[int]) -> str:
        """A scalar that depends on the rank."""
        if len(set(numbers)) == 1:
            return self.number(type, numbers[0])
        return self._private(type, (), NUMBER, [], " ".join(map(str, numbers)))

    def _private(
        self, type: str, dims: Sequence[int], target: str, operands: list[str], config: str
    ) -> str:
        more = f'custom_call_target="{target}", backend_config="{config}"'
        return self.add(type, dims, "custom-call", operands, more)

    def folded(self, name: str, item: Instruction) -> str:
        """[n, dims] folded along n, with the computation that a collective calls."""
        count, *dims = self.dims(name)
        type = self.type(name)
        opcode = binary_opcode(item.called[0])
        row = PRIMITIVE_TYPES[type]
        if opcode is not None and row.is_float and row.bits < 32:
            name = self.convert(name, "f32")
        whole = [(0, size, 1) for size in dims]
        parts = [
            self.reshape(self.slice(name, [(place, place + 1, 1), *whole]), dims)
            for place in range(count)
        ]
        total = parts[0]
        for part in parts[1:]:
            total = self.fold(opcode, total, part)
        return self.convert(total, type)

    def split(self, name: str, axis: int, count: int) -> str:
        """[count, dims]: an array cut along an axis."""
        dims = list(self.dims(name))
        part = dims[axis] // count
        cut = self.reshape(name, [*dims[:axis], count, part, *dims[axis + 1 :]])
        order = [axis, *(place for place in range(len(dims) + 1) if place != axis)]
        return self.transpose(cut, order)

    def joined(self, name: str, axis: int) -> str:
        """[count, dims] one behind the other along an axis of dims."""
        count, *dims = self.dims(name)
        order = [*range(1, axis + 1), 0, *range(axis + 1, len(dims) + 1)]
        dims[axis] *= count
        return self.reshape(self.transpose(name, order), dims)


def _members(scheduler: Scheduler) -> list[Member]:
    device: Any = scheduler.program
    return members_of(device.module, device.ranks)


def _groups(scheduler: Scheduler, item: Instruction, across_partitions: bool = False) -> Table:
    """For each rank its group. Raises NeuronError hlo-invalid for groups that overlap, or differ in
    size, and hlo-too-large."""
    members = _members(scheduler)
    size = group_size(item) or len(members)
    if len(members) * size > _MOST_ENTRIES:
        raise NeuronError(
            "hlo-too-large",
            f"{subject(item)}: {len(members):,} ranks in groups of {size:,}.",
            why=f"Ranks times those of a group are {_MOST_ENTRIES:,} at most.",
        )
    table = [list(group_of(item, member, across_partitions)) for member in members]
    groups = sorted(set(map(tuple, table)))
    if sum(map(len, groups)) != len(members) or len(set(map(len, groups))) > 1:
        raise NeuronError(
            "hlo-invalid",
            f"{subject(item)}: its groups are {groups[:4]}.",
            why="Every rank is in exactly one group, and groups have the same number of ranks.",
        )
    return table


Written = Callable[["Scheduler", "Instruction", RankText], list[str]]
"""The results of a collective, as instructions of a text."""


def _all_gather(scheduler: Scheduler, item: Instruction, text: RankText) -> list[str]:
    table = _groups(scheduler, item)
    (axis,) = item.attribute("dimensions")
    return [text.joined(text.exchange(name, table), axis) for name in text.operands]


def _all_reduce(scheduler: Scheduler, item: Instruction, text: RankText) -> list[str]:
    table = _groups(scheduler, item)
    found = []
    for name in text.operands:
        dims, count = text.dims(name), len(table[0])
        size = math.prod(dims)
        if count > 2 and size >= _LARGE and size % count == 0:
            parts = text.exchange(text.reshape(name, [count, size // count]), table, parted=True)
            name = text.reshape(text.exchange(text.folded(parts, item), table), dims)
        else:
            name = text.folded(text.exchange(name, table), item)
        found.append(name)
    return found


def _reduce_scatter(scheduler: Scheduler, item: Instruction, text: RankText) -> list[str]:
    table = _groups(scheduler, item)
    (axis,) = item.attribute("dimensions")
    return [
        text.folded(text.exchange(text.split(name, axis, len(table[0])), table, parted=True), item)
        for name in text.operands
    ]


def _all_to_all(scheduler: Scheduler, item: Instruction, text: RankText) -> list[str]:
    table = _groups(scheduler, item, across_partitions=True)
    count, axes = len(table[0]), item.attribute("dimensions")
    if axes:
        (name,) = text.operands
        parts = text.exchange(text.split(name, axes[0], count), table, parted=True)
        return [text.joined(parts, axes[0])]
    dims = text.dims(text.operands[0])
    rows = [text.reshape(name, [1, *dims]) for name in text.operands]
    parts = text.exchange(text.concatenate(rows, 0), table, parted=True)
    whole = [(0, size, 1) for size in dims]
    return [
        text.reshape(text.slice(parts, [(place, place + 1, 1), *whole]), dims)
        for place in range(count)
    ]


def _permute(scheduler: Scheduler, item: Instruction, text: RankText) -> list[str]:
    members = _members(scheduler)
    channel = (item.attribute("channel_id") or 0) > 0
    source = {pair.target: pair.source for pair in item.attribute("source_target_pairs")}
    partitions = members[0].partitions
    count = partitions if channel else len(members) // partitions
    if not all(0 <= number < count for pair in source.items() for number in pair):
        raise NeuronError(
            "hlo-invalid",
            f"{subject(item)}: it sends from {sorted(source.values())[:9]}, and to others.",
            why=f"Numbers of senders and receivers are from 0 to below {count}.",
        )
    table = []
    for member in members:
        replica, partition = divmod(member.rank, member.partitions)
        sender = source.get(partition if channel else replica)
        first, step = (
            (replica * member.partitions, 1) if channel else (partition, member.partitions)
        )
        table.append([-1 if sender is None else first + sender * step])
    return [_only(text, text.exchange(name, table)) for name in text.operands]


def _only(text: RankText, name: str) -> str:
    """The one block of an exchange."""
    return text.reshape(name, text.dims(name)[1:])


def _broadcast(scheduler: Scheduler, item: Instruction, text: RankText) -> list[str]:
    table = [group[:1] for group in _groups(scheduler, item, across_partitions=True)]
    return [_only(text, text.exchange(name, table)) for name in text.operands]


def _partition_id(scheduler: Scheduler, item: Instruction, text: RankText) -> list[str]:
    return [text.number_of_rank("u32", [m.rank % m.partitions for m in _members(scheduler)])]


def _replica_id(scheduler: Scheduler, item: Instruction, text: RankText) -> list[str]:
    return [text.number_of_rank("u32", [m.rank // m.partitions for m in _members(scheduler)])]


def _to_local(scheduler: Scheduler, item: Instruction, text: RankText) -> list[str]:
    """Of each array the part of this rank."""
    members = _members(scheduler)
    found = []
    for name, parts in zip(text.operands, _shardings(item, "in", members, len(text.operands))):
        dims = text.dims(name)
        places = [sharding.part(member.rank, dims) for member, sharding in zip(members, parts)]
        sizes = [part.stop - part.start for part in places[0]]
        starts = [
            text.number_of_rank("s32", [place[axis].start for place in places])
            for axis in range(len(dims))
        ]
        more = f"dynamic_slice_sizes={braces(sizes)}"
        found.append(
            text.add(text.type(name), sizes, "dynamic-slice", [name, *starts], more)
            if tuple(sizes) != dims
            else name
        )
    return found


def _to_global(scheduler: Scheduler, item: Instruction, text: RankText) -> list[str]:
    """Whole arrays, of the parts of the ranks that differ in axes along which they are cut only."""
    members = _members(scheduler)
    found = []
    for name, parts in zip(text.operands, _shardings(item, "out", members, len(text.operands))):
        dims = text.dims(name)
        counts = [parts[0].parts(axis) for axis in range(len(dims))]
        table = [sharding.owners(m.rank, len(dims)) for m, sharding in zip(members, parts)]
        blocks = text.reshape(text.exchange(name, table), [*counts, *dims])
        order = [place for axis in range(len(dims)) for place in (axis, len(dims) + axis)]
        whole = [count * size for count, size in zip(counts, dims)]
        found.append(text.reshape(text.transpose(blocks, order), whole))
    return found


def _shardings(
    item: Instruction, direction: str, members: list[Member], count: int
) -> Iterator[list[Sharding]]:
    """For each value its sharding, as each rank reads it."""
    attribute = f"xla.sdy.{direction}_shardings"
    found = [checked_shardings(item, attribute, member, count) for member in members]
    return (list(each) for each in zip(*found))


_WRITTEN: dict[str, Written] = {
    "all-gather": _all_gather,
    "all-reduce": _all_reduce,
    "all-reduce-start": _all_reduce,
    "reduce-scatter": _reduce_scatter,
    "all-to-all": _all_to_all,
    "collective-permute": _permute,
    "collective-broadcast": _broadcast,
    "partition-id": _partition_id,
    "replica-id": _replica_id,
}
_STARTED: dict[str, Written] = {
    "all-gather-start": _all_gather,
    "collective-permute-start": _permute,
}
_CALLED: dict[str, Written] = {TO_LOCAL: _to_local, TO_GLOBAL: _to_global}


def _handler(written: Written, started: bool = False) -> Callable[[Scheduler, Node], Any]:
    def handle(scheduler: Scheduler, node: Node) -> Any:
        item = node.instruction
        assert item is not None
        text = RankText(node)
        found = written(scheduler, item, text)
        if started:
            contexts = node.results[2 * len(found) :]
            found = [*text.operands, *found, *(text.number(t, 0, dims) for t, dims in contexts)]
        if [text.types[name] for name in found] != [(t, tuple(dims)) for t, dims in node.results]:
            return None
        called = item.called[0] if text.calls else None
        return expanded(scheduler, node, text.module(found), called)

    return handle


def _same(scheduler: Scheduler, node: Node) -> Any:
    values = [scheduler.value(operand) for operand in node.operands]
    return values[0] if len(values) == 1 else values


def _second(scheduler: Scheduler, node: Node) -> Any:
    """What came out of (operands, results, contexts ...)."""
    count = len(node.results)
    values = [scheduler.value(operand) for operand in node.operands[count : 2 * count]]
    return values[0] if count == 1 else values


HANDLERS: dict[str, Callable[[Scheduler, Node], Any]] = {
    **{opcode: _handler(written) for opcode, written in _WRITTEN.items()},
    **{opcode: _handler(written, started=True) for opcode, written in _STARTED.items()},
    "all-reduce-done": _same,
    "all-gather-done": _second,
    "collective-permute-done": _second,
}
"""How to schedule collectives."""


def called_by_ranks(scheduler: Scheduler, node: Node) -> Any:
    """Custom calls that depend on the rank; None for others."""
    assert node.instruction is not None
    written = _CALLED.get(node.instruction.attribute("custom_call_target"))
    found = exchanged(scheduler, node)
    if found is not None or written is None:
        return found
    return _handler(written)(scheduler, node)
