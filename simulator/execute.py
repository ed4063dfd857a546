"""Functional execution of a bound program, in one deterministic linearisation of its streams.

Cores and engines come in a fixed order; each stream runs until it waits for a semaphore or a
barrier. A DMA transfer happens when it is triggered, and updates its semaphores at once: in a
program that passed the happens-before check no order can be told from another. What the program
decided on the way (trip counts, branches, rows moved) is left in a `ControlTrace` for timing.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from isa.enums import STREAMS, Engine
from isa.errors import NeuronError
from isa.errors.calls import named_arguments
from isa.gc_pause import collection_paused
from isa.program import Program
from isa.target import resolve
from simulator.checks.initialised import Finding, Shadow
from simulator.device_state import Capacity, Device
from simulator.exchange import absent_cores
from simulator.malformed import refuses_malformed
from simulator.native.codegen.library import library
from simulator.oracle import quiet
from simulator.prepare import Barriers, Preparation, Watch
from simulator.races.replicated import Replicated
from simulator.straight_line import StraightLineProgram, prepare, shared_accesses
from simulator.streams import RunningStream, take_turns
from simulator.tensors import Tensors, size_of
from simulator.views import Array, Windows
from simulator.watchdog import LIMIT_ERRORS, Watchdog, innermost_loop, standing

if TYPE_CHECKING:
    from simulator.native.loop.program import NativeProgram


_RETURNED = frozenset({"output", "inout"})


@dataclass(slots=True)
class ControlTrace:
    """What a run decided: for each core, the event values of each engine in stream order.

    LoopBegin leaves its trip count, Branch 1 (taken) or 0, DmaCopy with a register term or a
    vector offset the number of rows it moved (rows that were skipped excluded).

    >>> from isa.files.text import assemble
    >>> program = assemble('''
    ... .program "twice" target=trn2
    ... .core
    ... .stream sync
    ...   LoopBegin register=R0 lower=0 upper=2 step=1 exit=@3
    ...   Nop
    ...   LoopEnd begin=@0
    ...   Halt
    ... ''')
    >>> list(run(program, []).trace.events(0, Engine.sync))
    [2]
    """

    cores: list[dict[Engine, array[int]]]

    def events(self, core: int, engine: Engine) -> Sequence[int]:
        """The event values of one stream; none where the core has no such stream."""
        return self.cores[core].get(engine, ())


@dataclass(slots=True)
class RunResult:
    """Outputs in return order, the parameters as the run left them, control trace (None where it
    was not kept), findings.

    >>> from isa.files.text import assemble
    >>> program = assemble('''
    ... .program "nothing" target=trn2
    ... .core
    ... .stream sync
    ...   Nop
    ...   Halt
    ... ''')
    >>> result = run(program, [])
    >>> result.outputs, result.inputs_after, result.findings
    ([], [], [])
    """

    outputs: list[Array]
    inputs_after: list[Array]
    trace: ControlTrace | None
    findings: list[Finding] = field(default_factory=list)


@named_arguments
def run(
    program: Program,
    inputs: Sequence[Array],
    check: bool = True,
    native: bool = True,
) -> RunResult:
    r"""Execute a bound program on arrays, one per parameter, in call order; they are not changed.

    `check`: follow uninitialised data, and refuse outputs that depend on it or were not written.
    `native`: compiled kernels where there are any, else NumPy alone. Raises NeuronError
    input-mismatch, dynamic-out-of-bounds, out-of-bounds, deadlock, uninitialised-output,
    output-not-written; loop-limit and time-limit beyond `simulator.watchdog.LIMITS`.

    >>> import numpy as np
    >>> from isa.files.text import assemble
    >>> program = assemble('''
    ... .program "copy" target=trn2
    ... .tensor t0 "a" float32[4] input
    ... .tensor t1 "out" float32[4] output
    ... .parameters "a"=t0
    ... .results t1
    ... .core
    ... .queue 0 "q" engine=sync
    ... .stream sync
    ...   DmaCopy dst=float32@shared_hbm[t1]+0[1][4] src=float32@shared_hbm[t0]+0[1][4] \
    ...     queue=0 dge_mode=none oob_mode=error
    ...   Halt
    ... ''')
    >>> result = run(program, [np.arange(4, dtype=np.float32)])
    >>> result.outputs, result.findings
    ([array([0., 1., 2., 3.], dtype=float32)], [])
    """
    return LoadedProgram(program, check, native).run(inputs)


class ProgramExecutor(Protocol):
    """A bound program that is ready to run any number of times, whoever executes it: mode device
    and mode reference, native code and NumPy, in one piece or in slices."""

    @property
    def device(self) -> Device:
        """The device whose tensors are those of a run."""

    def run(self, inputs: Sequence[Array], traced: bool = True) -> RunResult:
        """Execute once, as `run` does."""


class LoadedProgram:
    """A bound program on a device of its own, ready to run any number of times.

    Loading allocates the memories and prepares every instruction.

    - `check`: report uninitialised data and races.
    - `native`: use compiled code where there is some.
    - `threads`: how many share a large native instruction, unless the machine is busy; results do
      not depend on it.
    - `watch`: called after every instruction that computed or moved data, with core, engine, index,
      row and values. Instructions then run one by one, from Python.
    - `in_loop`: with `watch`, they run one by one in the native loop.
    - `capacity`: sizes of the memories, if not those of the target.
    - `sliced`: the program is one of two slices (`simulator.parallel_slices`).
    - `beside`: the loaded other slice, whose tensors this one shares.
    - `prepared`: the result of `simulator.straight_line.prepare`, if it is there already.

    Raises NeuronError for operands outside their memory.
    """

    @refuses_malformed
    def __init__(
        self,
        program: Program,
        check: bool = True,
        native: bool = True,
        threads: int = 1,
        watch: Watch | None = None,
        capacity: Capacity | None = None,
        in_loop: bool = False,
        sliced: bool = False,
        beside: LoadedProgram | None = None,
        prepared: StraightLineProgram | None = None,
    ) -> None:
        if program.symbols:
            names = ", ".join(symbol.name for symbol in program.symbols)
            raise NeuronError(
                "guard-refused",
                f"{program.name} has launch symbols without values: {names}.",
                why="Only a bound program can run.",
                hint="Bind it first: isa.binding.bind(program, {...}).",
            )
        self.program = program
        self.device = Device(resolve(program.target), len(program.cores), capacity)
        self.device.names = [
            f"{tensor.name!r}, which is {tensor.dtype}{list(tensor.shape)}"
            for tensor in program.tensors
        ]
        self.device.parts = {
            (tensor.within, tensor.offset, tensor.offset + size_of(tensor)): name
            for tensor, name in zip(program.tensors, self.device.names)
            if tensor.within is not None
        }
        # Without checks too, native code leaves sentinels out that nothing sees.
        self._native = native and library() is not None and (watch is None or in_loop)
        follows = check or self._native
        self.shadow = Shadow(reports=check) if follows else None
        self._beside = beside
        self.tensors: Tensors = Tensors(
            program, self.device, self.shadow, None if beside is None else beside.tensors
        )
        if self.shadow is not None:
            for core in self.device.cores:
                self.shadow.add(core.sbuf.buffer, core.sbuf.pitch)
                self.shadow.add(core.psum.buffer, core.psum.pitch)
        self.native = native
        self._watch = watch
        self._threads = threads
        self.barriers = Barriers()
        # A reference program has one stream a core, `Engine.unknown`, whose tensors are placed
        # already (`nki.reference.in_order`). Barriers alone order its cores.
        ordered = any(Engine.unknown in core.streams for core in program.cores)
        if prepared is None:
            prepared = prepare(program)
        moves = self._native and (sliced or not ordered)
        self._placed = prepared.placed() if moves else prepared.as_it_is()
        # What cores make in step, or must not, takes several.
        several = len(program.cores) > 1 and (check or ordered)
        self.replicated = Replicated(shared_accesses(self._placed)) if several else None
        self._windows = [Windows(core) for core in self.device.cores]
        with collection_paused():
            loaded = [self._load_core(number) for number in range(len(program.cores))]
            self.cores = [[preparation.stream for preparation in core] for core in loaded]
            self._preparations = [preparation for core in loaded for preparation in core]
            self._compiled = self._pack(loaded)
            self.tensors.prepare(self._preparations, self._windows, self._compiled)
            if self._compiled is not None and self.shadow is not None:
                self._compiled.mark()

    @property
    def is_native(self) -> bool:
        """Whether native code does all that its instructions compute and move."""
        native = self._compiled
        return native is not None and all(
            template.row.control or native.computes(preparation)[places].all()
            for preparation in self._preparations
            for template, places in zip(preparation.uses.templates, preparation.uses.places)
        )

    def stop(self, stop: bool = True) -> None:
        """Let a run end soon, from another thread; or let the next one run."""
        if self._compiled is not None:
            self._compiled.stopped = stop

    def _load_core(self, number: int) -> list[Preparation]:
        core, state = self._placed.program.cores[number], self.device.cores[number]
        state.allocations = core.storages
        semaphores = (ctypes.c_int64 * int(self.device.target.semaphores.value))()
        preparations = []
        for engine in STREAMS:
            instructions = core.streams.get(engine)
            if not instructions:
                continue
            stream = RunningStream(engine, instructions, state, semaphores)
            windows = self._windows[number]
            preparations.append(
                Preparation(
                    stream,
                    self._placed.cores[number].stream(engine, instructions),
                    self.barriers,
                    windows,
                    self.shadow,
                    self.native,
                    self.replicated,
                    self._watch,
                )
            )
        return preparations

    def __del__(self) -> None:
        # Cores know their device, and it them: their memory goes now. Nothing was loaded where
        # loading was refused.
        if hasattr(self, "device"):
            self.device.cores.clear()

    def _pack(self, loaded: list[list[Preparation]]) -> NativeProgram | None:
        """Prepare all instructions: as records of native code, or as steps where there is none."""
        from simulator.native.loop.program import NativeProgram

        preparations = [preparation for core in loaded for preparation in core]
        try:
            if self.shadow is not None and self._native:
                boxes = [core.boxes for core in self._placed.cores]
                given = self.shadow, self._threads, boxes, self._watch
                return NativeProgram(loaded, *given)
            for preparation in preparations:
                preparation.run()
        except NeuronError as error:
            stream = next(p.stream for p in preparations if p.stream.failed)
            raise self._located(error, stream) from None
        return None

    def _located(self, error: NeuronError, stream: RunningStream) -> NeuronError:
        """The error, with the kernel line of the instruction that the stream is at."""
        if error.location is None:
            error.location = self.program.place(stream.instructions[stream.pc].location)
        return error

    def run(self, inputs: Sequence[Array], traced: bool = True) -> RunResult:
        """Execute once; see `run`. The control trace grows with the iterations of loops, and is
        kept only where it is `traced`."""
        self.prepare(inputs, traced)
        self.execute()
        self._check_semaphores()
        self._check_outputs()
        return RunResult(
            outputs=[self.tensors.result(index) for index in self.program.results],
            inputs_after=[
                self.tensors.after(index, given)
                for index, given in zip(self.program.parameters, inputs)
            ],
            trace=ControlTrace([{s.engine: s.events[:] for s in streams} for streams in self.cores])
            if traced
            else None,
            findings=list(self.shadow.findings) if self.shadow is not None else [],
        )

    @refuses_malformed
    def prepare(self, inputs: Sequence[Array], traced: bool = True) -> None:
        """The first part of `run`: everything as it is before the first instruction."""
        watchdog = Watchdog()
        if self._beside is None:
            self.tensors.start(inputs)
        else:
            self.tensors.follow(self._beside.tensors)
        for core in self.device.cores:
            core.reset()
            if self.shadow is not None:
                self.shadow.spaces[core.sbuf.buffer].reset()
                self.shadow.spaces[core.psum.buffer].reset()
        if self.shadow is not None:
            self.shadow.reset()
        self.barriers.restart()
        if self.replicated is not None:
            self.replicated.restart()
        for streams in self.cores:
            for stream in streams:
                stream.restart(watchdog, traced)
                stream.semaphores[:] = [0] * len(stream.semaphores)
        for preparation in self._preparations:
            preparation.start()

    @refuses_malformed
    def execute(self) -> None:
        """The middle part of `run`: all instructions."""
        with collection_paused(), quiet():
            self._run_streams()

    def _run_streams(self) -> None:
        streams = [stream for core in self.cores for stream in core]
        try:
            if self._compiled is not None:
                self._compiled.run()
            else:
                take_turns(streams)
        except NeuronError as error:
            failed = next(s for s in streams if s.failed)
            if error.code in LIMIT_ERRORS:
                error.notes += standing(self._by_core(), self.program.place)
                error.location = self.program.place(innermost_loop(failed)[0].location)
            raise self._located(error, failed) from None
        for core in self.device.cores if self._compiled is not None else ():
            core.stationary.check()
        waiting = [(number, stream) for number, stream in self._by_core() if not stream.halted]
        if waiting:
            for number, stream in waiting:
                if stream.issued:
                    at = stream.instructions[stream.pc]
                    meeting = at.row.meeting(at.values, number)
                    raise self._located(absent_cores(at.row.name, meeting, number), stream)
            first = _culprit(waiting)
            lines = tuple(f"core {number}, {stream.waiting_for()}" for number, stream in waiting)
            raise NeuronError(
                "deadlock",
                f"{len(waiting)} engines wait for each other: " + "; ".join(lines) + ".",
                location=self.program.place(first.instructions[first.pc].location),
                notes=lines,
            )

    def _by_core(self) -> list[tuple[int, RunningStream]]:
        """The streams, each with the number of its core."""
        return [(number, stream) for number, core in enumerate(self.cores) for stream in core]

    def _check_semaphores(self) -> None:
        for number, core in enumerate(self.cores):
            if core and any(bytes(core[0].semaphores)):
                left = {i: v for i, v in enumerate(core[0].semaphores) if v}
                values = ", ".join(f"S[{index}]={value}" for index, value in left.items())
                raise NeuronError(
                    "deadlock",
                    f"Semaphores are unbalanced when core {number} has ended: {values}.",
                    why="Every update of a semaphore is taken off by a wait, so that all are 0 at "
                    "the end.",
                )

    @property
    def returned(self) -> list[int]:
        """The tensors that have to be complete at the end."""
        return [
            index
            for index, tensor in enumerate(self.program.tensors)
            if tensor.role in _RETURNED or index in self.program.results
        ]

    def _check_outputs(self) -> None:
        if self.shadow is None:
            return
        # A message about what lies within another tensor is the more precise one.
        within = [tensor.within is not None for tensor in self.program.tensors]
        for index in sorted(self.returned, key=within.__getitem__, reverse=True):
            self.tensors.check(index, self.program.place)


def _culprit(waiting: list[tuple[int, RunningStream]]) -> RunningStream:
    """The first of the waiting (core, stream) pairs that waits for what no other would still give;
    else the first of all, as they wait in a circle."""
    for number, stream in waiting:
        to_come = {
            semaphore
            for core, other in waiting
            if core == number
            for instruction in other.instructions[other.pc :]
            for semaphore, _ in instruction.updates
        }
        if stream.missing() - to_come:
            return stream
    return waiting[0][1]
