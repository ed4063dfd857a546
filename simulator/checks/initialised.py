"""Tracking of uninitialised memory, next to the execution of a program.

`Shadow` mirrors the memories that an executor registers and follows each instruction: what it reads
uninitialised becomes a finding, what it writes becomes as good as what it read. A finding is
harmless until it reaches an output: then `check_output` raises. It does not reach it through a
product with zero, as long as it stands for a finite number: then `check_output` warns.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from isa.array_tiles import ArrayTile
from isa.enums import Engine
from isa.errors import NeuronError
from isa.errors.warned import warn
from isa.spec import MachineInstruction
from simulator.by_identity import ByIdentity
from simulator.checks import (  # noqa: F401 (each registers its rows)
    gather_rows,
    mx_rows,
    random_rows,
    vector_rows,
)
from simulator.checks.marks import Space
from simulator.checks.meaning import propagate
from simulator.checks.propagation import InstructionUse, Operands
from simulator.checks.regions import CLEAN, EMPTY, INITIALISED, TAINTED, UNWRITTEN, States
from simulator.checks.tracked import Tracked
from simulator.views import Array, Indirect

FINDINGS_KEPT = 32
"""How many distinct reads of uninitialised data a run reports."""


UNWRITTEN_ALLOWED: ContextVar[bool] = ContextVar("unwritten_allowed", default=False)
"""Whether results may hold what was never written."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A read of uninitialised data: which operand of which instruction, and how many elements.

    `location` is what the executor passed: a program's location index, or a tracer's location.
    `hint` says what to do about it, where that is not to write the operand.
    """

    location: Any
    row: str
    operand: str
    elements: int
    hint: str = ""


class UninitialisedZeroWarning(RuntimeWarning):
    """Uninitialised elements are multiplied by zero: the product is zero for every finite number
    that the memory may hold, but not for infinity or NaN."""


class Shadow:
    """Marks of all memories of a device, and of the engine state of its cores.

    An executor registers each buffer with `add`, then calls `begin` for each `StorageBegin` and
    `follow` before each other instruction, with the same values that it passes to the kernel.
    Where it does not report, uninitialised memory has its sentinel as soon as something sees it,
    and that counts as a value.
    """

    def __init__(self, reports: bool = True) -> None:
        self.reports = reports
        self.states = States()
        self.spaces: ByIdentity[Space] = ByIdentity()
        self.findings: list[Finding] = []
        self.times_zero: Finding | None = None
        self.repeated: dict[Any, str] = {}
        self.stationary: dict[tuple[int, ArrayTile], Array] = {}
        self.accumulators: dict[tuple[int, Engine], Array] = {}
        self.generators: dict[tuple[int, Engine], Array] = {}
        self._seen: set[tuple[Any, str, str]] = set()

    def reset(self) -> None:
        """Forget findings and engine state; spaces are reset by whoever owns their buffers."""
        self.findings = []
        self.times_zero = None
        self.repeated = {}
        self.stationary.clear()
        self.accumulators.clear()
        self.generators.clear()
        self._seen.clear()

    def add(self, buffer: Array, pitch: int = 0, initialised: bool = False, unit: int = 1) -> Space:
        """Mirror a uint8 buffer: an arena of that partition pitch, or (0) one tensor, which is
        mostly seen as elements of `unit` bytes.

        The buffer must own its memory, and live as long as the shadow.
        """
        space = self.spaces[buffer] = Space(buffer, pitch, initialised, self.states, unit)
        return space

    def move(self, old: Array, new: Array) -> None:
        """What a registered buffer held is in another buffer of its size from now on."""
        space = self.spaces.pop(old)
        space.move(new)
        self.spaces[new] = space

    def space_of(self, view: Array) -> Space:
        """The space of the registered buffer that a view (made by `views.strided`) aliases."""
        base: Any = view
        while base not in self.spaces:
            base = base.base
        return self.spaces[base]

    def begin(self, view: Array) -> None:
        """An allocation begins at `view`."""
        self.space_of(view).begin(view)

    def track(self, row: type[MachineInstruction], values: Sequence[Any]) -> Operands:
        """The operands of an instruction; None for fields that are no view."""
        tracked: list[Tracked | None] = [None] * len(values)
        for position, name, _ in row.operands:
            value = values[position]
            if isinstance(value, np.ndarray):
                tracked[position] = Tracked(self.space_of(value), value, name)
            elif isinstance(value, Indirect):
                index = Tracked(self.space_of(value.index), value.index, f"{name} index")
                tracked[position] = Tracked(self.space_of(value.base), value.base, name, index)
        return tuple(tracked)

    def follow(
        self,
        row: type[MachineInstruction],
        state: Any,
        values: Sequence[Any],
        location: Any = None,
        operands: Operands | None = None,
    ) -> None:
        """Account for one instruction that is about to execute; `state` as kernels take it.

        `operands`: what `track` gave for these values, if the caller kept it.
        """
        operands = operands or self.track(row, values)
        if self.reports:
            propagate(InstructionUse(self, row, state, values, operands, location))
            return
        for operand in operands:
            if operand is not None:
                operand.give_sentinel()
                if operand.index is not None:
                    operand.index.give_sentinel()

    def complete(self, buffer: Array) -> None:
        """What was never written of a tensor gets its sentinel."""
        region = self.spaces[buffer].whole
        assert region is not None, "it is a tensor, not an arena"
        region.settle()
        region.fill()

    def found(self, use: InstructionUse, operand: Tracked, mask: Array) -> None:
        """Record a read of uninitialised elements: those outside `mask`."""
        self._record(use, operand.name, mask)

    def found_registers(self, use: InstructionUse, marks: Array) -> None:
        """Record a read of accumulate registers of which only those with `marks` have a value."""
        self._record(
            use,
            "reduce_regs",
            marks,
            "Pass reduce_cmd=nisa.reduce_cmd.reset_reduce to the operation, or to the first of "
            "those that accumulate: without, the engine's registers are read as they are.",
        )

    def _record(self, use: InstructionUse, name: str, mask: Array, hint: str = "") -> None:
        key = (use.location, use.row.name, name)
        if key not in self._seen and len(self.findings) < FINDINGS_KEPT:
            self._seen.add(key)
            missing = mask.size - int(np.count_nonzero(mask))
            self.findings.append(Finding(use.location, use.row.name, name, missing, hint))

    def found_times_zero(self, use: InstructionUse, operand: str, elements: int) -> None:
        """Record uninitialised elements that do not reach a result, as they are multiplied by 0."""
        if self.times_zero is None:
            self.times_zero = Finding(use.location, use.row.name, operand, elements)

    def found_repeated(self, use: InstructionUse, row: int, times: int) -> None:
        """Record that a scatter writes a row several times."""
        what = f"{use.row.name} writes row {row} of the tensor {times} times"
        self.repeated.setdefault(use.location, what)

    def accumulator_marks(self, state: Any, count: int) -> Array:
        """Which of the accumulate registers are initialised that an instruction on `count`
        partitions uses: those of the state's engine, from the state's start partition."""
        key = state.number, state.engine
        marks = self.accumulators.get(key)
        if marks is None:
            size = state.accumulators[state.engine].size
            marks = self.accumulators[key] = np.zeros(size, np.bool_)
        return marks[state.start_partition : state.start_partition + count]

    def check_output(
        self,
        buffer: Array,
        name: str,
        itemsize: int,
        locate: Callable[[Any], Any],
        made: Any = None,
        part: tuple[int, int] | None = None,
    ) -> None:
        """Raise NeuronError unless every element of an output tensor is initialised.

        uninitialised-output: some were written with uninitialised data; output-not-written: some
        were never written. `locate` gives the place in the kernel of a finding's location: the
        error's is that of the first finding, or that of `made`, where the tensor was made. An
        output within a tensor is a `part` of it: (first byte, bytes). Where UNWRITTEN_ALLOWED says
        so, they are warnings, and what was never written has its sentinel.

        Warns UninitialisedZeroWarning, once a run, of what was multiplied by zero, and of scatters
        that write a row several times.
        """
        self._warn(locate)
        error = self._missing(buffer, name, itemsize, locate, made, part)
        if error is None:
            return
        if not UNWRITTEN_ALLOWED.get():
            try:
                raise error
            finally:
                del error  # else the error's traceback and this frame hold each other
        self.complete(buffer)
        warn("unwritten-result", error.what, error.location)

    def _missing(
        self,
        buffer: Array,
        name: str,
        itemsize: int,
        locate: Callable[[Any], Any],
        made: Any,
        part: tuple[int, int] | None,
    ) -> NeuronError | None:
        """What is wrong with an output tensor, as `check_output` says."""
        region = self.spaces[buffer].whole
        assert region is not None, "outputs are tensors, not arenas"
        region.settle()
        if region.state == CLEAN or region.nbytes == 0:
            return None
        first, size = part or (0, region.nbytes)
        total = size // itemsize
        if region.state == EMPTY:
            return NeuronError(
                "output-not-written",
                f"Output {name}: none of its {total} elements was written.",
                location=locate(made),
            )
        marks = region.bytes().reshape(-1)[first : first + size].reshape(total, itemsize)
        if (marks == INITIALISED).all():
            return None
        tainted = (marks == TAINTED).any(axis=1)
        if not tainted.any():
            missing = (marks == UNWRITTEN).any(axis=1)
            return NeuronError(
                "output-not-written",
                f"Output {name}: {int(np.count_nonzero(missing))} of its {total} elements were "
                f"never written, the first of them element {int(np.argmax(missing))} in row-major "
                "order.",
                hint="Copy something into these too (nisa.dma_copy of a tile that nisa.memset "
                "filled), or make the result as large as what is written. NKI_UNWRITTEN=allowed "
                "returns them as they are.",
                location=locate(made),
            )
        return NeuronError(
            "uninitialised-output",
            f"Output {name}: {int(np.count_nonzero(tainted))} of its {total} elements depend on "
            f"uninitialised data, the first of them element {int(np.argmax(tainted))} in "
            f"row-major order.{self._first_read()}",
            hint=self.findings[0].hint if self.findings else "",
            location=(locate(self.findings[0].location) if self.findings else None) or locate(made),
        )

    def _warn(self, locate: Callable[[Any], Any]) -> None:
        repeated, self.repeated = self.repeated, {}
        for location, what in repeated.items():
            warn("repeated-index", what, locate(location))
        found, self.times_zero = self.times_zero, None
        if found is None:
            return
        place = locate(found.location)
        warnings.warn_explicit(
            f"{found.row} takes {found.elements} uninitialised elements of its operand "
            f"{found.operand} times zero: that is zero only where the memory does not happen to "
            "hold NaN. Clear it first, with nisa.memset.",
            UninitialisedZeroWarning,
            place.file if place else "<kernel>",
            place.line if place else 0,
        )

    def _first_read(self) -> str:
        if not self.findings:
            return ""
        first = self.findings[0]
        return (
            f" The first read of uninitialised data was by {first.row}: {first.elements} elements "
            f"of its operand {first.operand}."
        )
