"""From tile IR with addresses to a program: expand, schedule, synchronise, emit.

Each stage is a pass with a product of its own, which later ones leave as it is; `listing` prints
the first three, `isa.files.text` programs. The products have one entry a core.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from isa.columns import Integers
from isa.enums import Engine
from isa.program import CoreProgram, Program, Queue
from isa.rules.banks import WHOLE_PSUM
from isa.spec import Instruction
from isa.target import TARGETS, Target
from nki.ir.checks.unset_registers import maybe_unset
from nki.ir.nodes import Node, Tensor, TracedKernel
from nki.passes.analysis.body import Body
from nki.passes.analysis.channels import Channels, CoreFacts
from nki.passes.analysis.dependences import Dependences
from nki.passes.analysis.rerolled import repeated
from nki.passes.analysis.steps import ENGINE_INDEX, ENGINES, expand
from nki.passes.emit.addresses import Addresses, OperandColumns
from nki.passes.emit.banks import check_banks
from nki.passes.emit.declarations import hbm_tensors, program_of, storage_records
from nki.passes.emit.emit import Operands, emit
from nki.passes.emit.location_table import LocationTable
from nki.passes.emit.registers import Assignment, Mentions
from nki.passes.listing import listing
from nki.passes.order.schedule import GAIN, WINDOW, carried_state, costs_of, schedule
from nki.passes.synchronise.synchronise import Signals, synchronise


class CoreSteps(NamedTuple):
    """The steps of one core, the order in which engines take them, by their numbers, and who waits
    for whom; None where that is not known yet. `owners` are those of the DMA queues."""

    body: Body
    owners: tuple[Engine, ...]
    order: Integers
    context: CoreFacts
    addresses: Addresses
    dependences: Dependences | None = None
    operands: OperandColumns | None = None
    mentions: Mentions | None = None
    signals: Signals | None = None

    def __str__(self) -> str:
        return listing(self.body, self.order, self.signals)


class KernelSteps(NamedTuple):
    """The product of the stages before the last: a kernel as machine instructions."""

    kernel: TracedKernel
    cores: list[CoreSteps]

    @property
    def target(self) -> Target:
        """The kernel's."""
        return TARGETS[self.kernel.target]

    def __str__(self) -> str:
        return "".join(map(str, self.cores))


@dataclass(frozen=True)
class Expand:
    """Operations become machine instructions, in the author's order, and control flow is repeated
    on every engine that takes part (`nki.passes.analysis.steps`)."""

    name = "expand"

    def run(self, kernel: TracedKernel) -> KernelSteps:
        target = TARGETS[kernel.target]
        placement = kernel.placement or {}
        index = hbm_tensors(kernel)
        parts = [expand(nodes, target) for nodes in kernel.bodies]
        bodies = [Body(expanded.level) for expanded in parts]
        tracked = set[Tensor]().union(*[body.written for body in bodies])
        cores = []
        for expanded, body in zip(parts, bodies):
            owners = [ENGINE_INDEX[owner] for owner in expanded.owners]
            channels = Channels(target.semaphores.value)
            context = CoreFacts(owners, tracked, placement, channels)
            addresses = Addresses(index, placement)
            order = np.arange(len(body.steps))
            cores.append(CoreSteps(body, expanded.owners, order, context, addresses))
        return KernelSteps(kernel, cores)


@dataclass(frozen=True)
class Schedule:
    """Engines take steps that need not wait ahead of others that must
    (`nki.passes.order.schedule`). An operation overtakes `window` others at most, and a stretch
    keeps the author's order unless the new one takes no more than the part `gain` of its time."""

    window: int = WINDOW
    gain: float = GAIN
    name = "schedule"

    def run(self, steps: KernelSteps) -> KernelSteps:
        return steps._replace(cores=[self._core(core, steps.target) for core in steps.cores])

    def _core(self, core: CoreSteps, target: Target) -> CoreSteps:
        body = core.body
        dependences = Dependences(body, core.context, carried_state(body))
        costs = costs_of(target).of(body)
        order = schedule(body, dependences, costs, target, self.window, self.gain)
        return core._replace(order=order, dependences=dependences)


@dataclass(frozen=True)
class Synchronise:
    """Steps wait for what they follow on other engines and queues, by semaphores
    (`nki.passes.synchronise.synchronise`)."""

    name = "synchronise"

    def run(self, steps: KernelSteps) -> KernelSteps:
        return steps._replace(cores=list(map(self._core, steps.cores)))

    def _core(self, core: CoreSteps) -> CoreSteps:
        body, order, dependences = core.body, core.order, core.dependences
        assert dependences is not None
        operands = core.addresses.columns(body.accesses)
        mentions = Mentions(body, order)
        alone = np.zeros(order.size, np.bool_)
        alone[order[list(mentions.by_place)]] = True
        again = repeated(order, body, dependences, operands.number, alone)
        signals = synchronise(body, order, dependences, core.context, again)
        return core._replace(operands=operands, mentions=mentions, signals=signals)


@dataclass(frozen=True)
class Emit:
    """Steps become the streams of a program, with addresses and register numbers
    (`nki.passes.emit.emit`)."""

    name = "program"

    def run(self, steps: KernelSteps) -> Program:
        kernel, target = steps.kernel, steps.target
        locations = LocationTable()
        programs = []
        for core, nodes in zip(steps.cores, kernel.bodies):
            streams = self._streams(core, nodes, target, locations)
            queues = [Queue(f"q{owner.name.capitalize()}IO0", owner) for owner in core.owners]
            storages = storage_records(nodes, locations, kernel.placement or {})
            programs.append(CoreProgram(streams, queues, storages))
        return program_of(kernel, programs, hbm_tensors(kernel), locations)

    def _streams(
        self, core: CoreSteps, nodes: list[Node], target: Target, locations: LocationTable
    ) -> dict[Engine, MutableSequence[Instruction]]:
        body, mentions = core.body, core.mentions
        assert mentions is not None and core.operands is not None and core.signals is not None
        looping = len(body.layers) > 1
        unset = maybe_unset(nodes) if mentions.by_place or looping else set()
        limit = target.registers_per_engine.value
        assignments = [Assignment(mentions, engine, limit, unset) for engine in range(ENGINES)]
        operands = Operands(body, core.addresses, core.operands)
        streams = emit(body, core.order, core.signals, operands, mentions, assignments, locations)
        if target.generation < WHOLE_PSUM:
            for stream in streams.values():
                check_banks(stream, target, locations)
        return streams


LOWERING: tuple[Any, ...] = (Expand(), Schedule(), Synchronise(), Emit())
"""The stages; each takes the product of the one before."""


def lower(kernel: TracedKernel, observe: Callable[[str, Any], None] = lambda *_: None) -> Program:
    """The program of a kernel whose tensors on chip all have addresses; `observe(stage, product)`
    sees what each stage makes."""
    form: Any = kernel
    for stage in LOWERING:
        form = stage.run(form)
        observe(stage.name, form)
    program: Program = form
    return program
