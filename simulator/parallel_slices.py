"""A loaded program whose two slices run at the same time, a thread each.

Threads that divide the partitions of every instruction pass tiles from core to core wherever
partitions meet, as in products, and each of them streams all that is multiplied. Slices
(`simulator.straight_line.slices`) have no more in common than arguments that nobody writes, and the
memory of results, to which each writes bytes of its own.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from isa.errors import NeuronError
from isa.gc_pause import collection_paused
from isa.program import Program
from simulator.checks.regions import CLEAN, INITIALISED, MIXED, MarkedRegion
from simulator.device_state import Capacity, Device
from simulator.execute import ControlTrace, LoadedProgram, ProgramExecutor, RunResult
from simulator.native.loop.program import StoppedError
from simulator.native.threads.other_processes import busy
from simulator.straight_line import StraightLineProgram, prepare
from simulator.views import Array


def load(
    program: Program,
    check: bool = True,
    native: bool = True,
    threads: int = 1,
    capacity: Capacity | None = None,
) -> ProgramExecutor:
    """A bound program ready to run any number of times, in the way in which `threads` of them are
    fastest. Raises NeuronError as `LoadedProgram` does."""
    prepared = prepare(program)
    if check and native and threads > 1 and capacity is None and not program.symbols:
        found = _in_slices(prepared, threads)
        if found is not None:
            return found
    return LoadedProgram(program, check, native, threads, capacity=capacity, prepared=prepared)


def _in_slices(prepared: StraightLineProgram, threads: int) -> ParallelSlices | None:
    """The slices of a program, loaded; None where it has none, or something in them would run from
    Python, where only one can at a time."""
    with collection_paused():
        slices = prepared.halves()
        if slices is None:
            return None
        try:
            found = ParallelSlices(prepared.program, slices, threads)
        except NeuronError:
            return None  # The whole program says where.
    return found if found.are_native else None


class ParallelSlices:
    """The two slices of `program`, loaded. As `LoadedProgram`, with checks.

    Where the machine is busy they run one after the other. A run in which anything is worth a word,
    an error or data that is not initialised, is done again by the whole program, as are the runs
    behind it: what is said of a program does not depend on threads.
    """

    def __init__(
        self,
        program: Program,
        slices: tuple[StraightLineProgram, StraightLineProgram],
        threads: int,
    ) -> None:
        self.program = program
        self._threads = threads
        each = threads // 2
        first, second = slices
        left = LoadedProgram(first.program, threads=each, sliced=True, prepared=first)
        right = LoadedProgram(
            second.program, threads=each, sliced=True, beside=left, prepared=second
        )
        left.tensors.stay_with(right.tensors)
        self._slices = left, right
        self._whole: LoadedProgram | None = None

    @property
    def are_native(self) -> bool:
        """Whether nothing in them runs from Python."""
        return all(part.is_native for part in self._slices)

    @property
    def device(self) -> Device:
        """The device whose tensors are those of a run."""
        return (self._whole or self._slices[0]).device

    def run(self, inputs: Sequence[Array], traced: bool = True) -> RunResult:
        """As `LoadedProgram.run`."""
        if self._whole is None:
            self.prepare(inputs)
            try:
                self.execute()
                usual = self._are_as_usual()
            except NeuronError:
                usual = False
            if usual:
                return self._result(inputs)
            self._whole = LoadedProgram(self.program, threads=self._threads)
        return self._whole.run(inputs, traced)

    def prepare(self, inputs: Sequence[Array]) -> None:
        """The first part of `run`: everything as it is before the first instruction."""
        for part in self._slices:
            part.prepare(inputs)
            part.stop(False)

    def execute(self) -> None:
        """The middle part of `run`: all instructions. Raises what one of the slices raised."""
        first, second = self._slices
        if busy(len(self._slices)):
            first.execute()
            second.execute()
            return
        errors: list[BaseException] = []

        def beside() -> None:
            try:
                second.execute()
            except BaseException as error:
                errors.append(error)
                first.stop()

        with collection_paused():
            thread = threading.Thread(target=beside, daemon=True)
            try:
                thread.start()
                first.execute()
                thread.join()
            except BaseException as error:
                second.stop()
                with suppress(RuntimeError):  # It has not even started.
                    thread.join()
                if not isinstance(error, StoppedError) or not errors:
                    raise
        if errors:
            raise errors[0]

    def _are_as_usual(self) -> bool:
        """Whether there is nothing to say of the run, and the results are complete."""
        for part in self._slices:
            assert part.shadow is not None, "they are checked"
            if part.shadow.findings or part.shadow.times_zero is not None:
                return False
        return all(
            _complete(*(_region(part, index) for part in self._slices))
            for index in self._slices[0].returned
        )

    def _result(self, inputs: Sequence[Array]) -> RunResult:
        first = self._slices[0]
        streams = self.program.cores[0].streams
        return RunResult(
            outputs=[first.tensors.result(index) for index in self.program.results],
            inputs_after=[np.asarray(given) for given in inputs],
            trace=ControlTrace(
                [{engine: array("q") for engine, stream in streams.items() if stream}]
            ),
        )


def _region(part: LoadedProgram, index: int) -> MarkedRegion:
    """The marks that a slice has left of a tensor."""
    assert part.shadow is not None, "they are checked"
    region = part.shadow.spaces[part.device.tensors[index]].whole
    assert region is not None, "it is a tensor, not an arena"
    return region


def _complete(first: MarkedRegion, second: MarkedRegion) -> bool:
    """Whether all bytes of a tensor are initialised by one slice or the other."""
    for region in (first, second):
        region.settle()
        if region.state == CLEAN or not region.nbytes:
            return True
    if first.state != MIXED or second.state != MIXED:
        return False
    regions = first, second
    if first.space.unit == second.space.unit:
        marks = [region.marks().reshape(-1) for region in regions]
    else:
        marks = [region.bytes().reshape(-1) for region in regions]
    return bool(((marks[0] == INITIALISED) | (marks[1] == INITIALISED)).all())
