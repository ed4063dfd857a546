"""From tile IR with addresses to a program: expand, replicate control, synchronise, emit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableSequence, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from isa.access import AccessPattern, byte_hull
from isa.dtypes import DTYPES
from isa.enums import SEQUENCERS, Engine, Memory
from isa.errors import NeuronError
from isa.memory import psum_bank
from isa.operations.control import StorageBegin
from isa.program import (
    CoreProgram,
    Program,
    Queue,
    SourceLocation,
    TensorDeclaration,
)
from isa.rules import WHOLE_PSUM
from isa.spec import Instruction
from isa.storages import StorageForm, Storages, numbered_name, of_forms
from isa.stream import Stream, at_offset, in_columns, moving
from isa.target import TARGETS, Target
from nki.ir.locations import resolve
from nki.ir.nodes import Access, Kernel, Node, Op, Tensor, operations, walk
from nki.passes import straight
from nki.passes.channels import Channels, Context
from nki.passes.emit import (
    Addresses,
    Emitter,
    LocationTable,
    divided,
)
from nki.passes.emit_columns import mention_registers, streams_in_columns
from nki.passes.rerolled import repeated
from nki.passes.schedule import Scheduler
from nki.passes.steps import ENGINE_INDEX, Region, Step, assign_queues, expand
from nki.passes.synchronise import Level
from nki.unset_registers import maybe_unset

_ROLES = {"input": "input", "output": "output", "inout": "inout", "constant": "constant"}


def lower(kernel: Kernel, scheduled: Callable[[Any], None] = lambda _: None) -> Program:
    """The program of a kernel whose on-chip tensors all have addresses.

    `scheduled` sees the steps of each core in the order that the scheduler gives them.
    """
    target = TARGETS[kernel.target]
    placement = kernel.placement or {}
    index = hbm_tensors(kernel)
    tracked = _tracked(kernel)
    locations = LocationTable()
    cores = [
        _core(body, tracked, index, target, locations, placement, scheduled)
        for body in kernel.bodies
    ]
    return program_of(kernel, cores, index, locations)


def hbm_tensors(kernel: Kernel) -> dict[Tensor, int]:
    """The tensors of a kernel that its program declares, with their numbers there."""
    hbm = [tensor for tensor in kernel.tensors if not tensor.memory.on_chip]
    return {tensor: number for number, tensor in enumerate(hbm)}


def program_of(
    kernel: Kernel, cores: list[CoreProgram], index: dict[Tensor, int], locations: LocationTable
) -> Program:
    """The program of a kernel whose cores are lowered; `index` numbers its tensors in HBM."""
    return Program(
        kernel.name,
        kernel.target,
        cores,
        [_declaration(tensor, locations) for tensor in index],
        [index[tensor] for tensor in kernel.parameters],
        list(kernel.parameter_names),
        [index[tensor] for tensor in kernel.results],
        list(kernel.symbols),
        [replace(guard, location=locations.index(guard.location)) for guard in kernel.guards],
        [resolve(location) or _NOWHERE for location in locations.locations],
    )


_NOWHERE = SourceLocation("", 0, 0, 0, "", "")


def _core(
    body: list[Node],
    tracked: set[Tensor],
    index: dict[Tensor, int],
    target: Target,
    locations: LocationTable,
    placement: dict[Tensor, tuple[int, int]],
    scheduled: Callable[[Any], None],
) -> CoreProgram:
    items = expand(body, target)
    owners: list[Engine] = []
    assign_queues(items, owners)
    channels = Channels(target.semaphores.value)
    context = Context([ENGINE_INDEX[owner] for owner in owners], tracked, placement, channels)
    addresses = Addresses(index, placement)
    scheduler = Scheduler(context, target, addresses)
    items = scheduler.run(items)
    scheduled(items)
    streams: dict[Engine, MutableSequence[Instruction]]
    if scheduler.straight and scheduler.stretch and scheduler.dependences:
        stretch = scheduler.stretch
        order, graph = scheduler.order, scheduler.dependences
        if stretch.accesses.many and not mention_registers(stretch):
            operands = addresses.columns(stretch.accesses)
            again = repeated(order, stretch, graph, operands.number)
            signals = straight.synchronise(order, stretch, graph, context, again)
            streams = streams_in_columns(order, stretch, signals, operands, locations)
        else:
            signals = straight.synchronise(order, stretch, graph, context)
            signals.enter([stretch.steps[number] for number in order.tolist()])
            streams = _emitted(body, items, addresses, locations, target)
    else:
        Level(items, context).run()
        streams = _emitted(body, items, addresses, locations, target)
    if target.generation < WHOLE_PSUM:
        for stream in streams.values():
            _check_banks(stream, target, locations)
    queues = [Queue(f"q{owner.name.capitalize()}IO0", owner) for owner in owners]
    return CoreProgram(streams, queues, storage_records(body, locations, placement))


def _emitted(
    body: list[Node],
    items: list[Step | Region],
    addresses: Addresses,
    locations: LocationTable,
    target: Target,
) -> dict[Engine, MutableSequence[Instruction]]:
    """The streams of a body, written instruction by instruction."""
    has_registers = any(isinstance(item, Region) for item in items) or any(
        item.instruction.row.control for item in items if isinstance(item, Step)
    )
    unset = maybe_unset(body) if has_registers else set()
    streams: dict[Engine, MutableSequence[Instruction]] = {}
    for engine, mine in enumerate(divided(items)):
        emitter = Emitter(
            engine, addresses, target.registers_per_engine.value, locations, has_registers, unset
        )
        streams[SEQUENCERS[engine]] = Stream(in_columns(emitter.run(mine)))
    return streams


def _check_banks(stream: Sequence[Instruction], target: Target, locations: LocationTable) -> None:
    """Raise psum-bank where an instruction writes more than one bank (SDK nki.isa.nc_matmul, "Tile
    size"). Addresses that a register or launch symbol moves are left to the author."""
    for instruction, position, pattern in _banked(stream):
        form = (pattern.offset, *(number for dim in pattern.dims for number in dim))
        if pattern.registers or not all(type(number) is int for number in form):
            continue
        low, high = byte_hull(pattern)
        if psum_bank(low, target) == psum_bank(high - 1, target):
            continue
        name = instruction.row.field_names[position]
        size = target.psum_bank_bytes.value
        raise NeuronError(
            "psum-bank",
            f"{name} covers bytes {low} to {high - 1} of its partitions of PSUM; a bank has "
            f"{size}, one ends at {(low // size + 1) * size - 1}",
            location=resolve(locations.locations[instruction.location]),
        )


def _banked(stream: Sequence[Instruction]) -> Iterator[tuple[Instruction, int, AccessPattern]]:
    """Operands that must lie in one bank, with their instructions (at other offsets) and their
    positions in these. Those at symbolic places are left out."""
    columns = in_columns(stream)
    for template, numbers in zip(columns.templates, columns.numbers):
        for column, position in enumerate(moving(template), 1):
            if position in template.row.banked:
                for offset in np.unique(numbers[:, column]).tolist():
                    yield template, position, at_offset(template.values[position], offset)


def _tracked(kernel: Kernel) -> set[Tensor]:
    """Tensors between whose accesses there can be a dependence: those that something writes."""
    written: set[Tensor] = set()
    for body in kernel.bodies:
        for node in walk(body):
            if isinstance(node, Op):
                for position in node.row.writes:
                    value = node.values[position]
                    if isinstance(value, Access):
                        written.add(value.storage)
    return written


def storage_records(
    body: list[Node], locations: LocationTable, placement: dict[Tensor, tuple[int, int]]
) -> Storages:
    """The on-chip allocations of a body, in the order in which they begin."""
    known: dict[Any, int] = {}
    forms: list[StorageForm] = []
    labelled: list[int] = []
    which, numbers, offsets = [], [], []
    for op in operations(body):
        if op.row is StorageBegin and (place := placement.get(t := op.values[0].storage)):
            location = t.location or op.location  # whose hash would walk a code object
            key = t.label, t.copy > 0, t.memory, t.dtype, t.shape, place[0], id(location)
            kind = known.get(key)
            if kind is None:
                kind = known[key] = len(forms)
                stem, number = (f"{t.label}.", 0) if t.copy else numbered_name(t.label)
                labelled.append(number)
                forms.append(_form(stem, t, place[0], locations.index(location)))
            which.append(kind)
            numbers.append(labelled[kind] + t.copy)
            offsets.append(place[1])
    rows = np.array([numbers, offsets], np.int64).T
    return Storages(of_forms(forms, np.array(which, np.int64), rows))


def _form(stem: str, tensor: Tensor, start: int, location: int) -> StorageForm:
    return StorageForm(
        stem,
        tensor.memory.value,
        tensor.dtype,
        tuple(tensor.shape),
        start,
        tensor.shape[0],
        tensor.pitch * DTYPES[tensor.dtype].size,
        location,
    )


def _declaration(tensor: Tensor, locations: LocationTable) -> TensorDeclaration:
    data = None if tensor.data is None else tensor.data.tobytes()
    core = None if tensor.memory is Memory.shared_hbm else tensor.core
    return TensorDeclaration(
        tensor.name,
        tensor.dtype,
        tuple(tensor.shape),
        _ROLES.get(tensor.role, "internal"),
        core,
        data,
        locations.index(tensor.location),
    )
