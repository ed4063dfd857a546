"""The records of instructions that control a stream: registers, loops, branches, barriers, halts
and allocations."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from isa.enums import Condition, RegisterOperation
from isa.machine import control
from isa.program import RegisterReference
from isa.spec import Instruction
from simulator.checks.initialised import Shadow
from simulator.checks.regions import States
from simulator.native.codegen.structure import WordMemory
from simulator.native.codegen.text import WORD
from simulator.native.loop.meetings import MeetingTable
from simulator.native.loop.shared import SharedTemplates
from simulator.native.loop.walk import BEGIN, CONDITIONS, KINDS, OPERATIONS
from simulator.views import Window

if TYPE_CHECKING:
    from simulator.prepare import Preparation


class ControlRecords:
    """Finds the members of records of one stream. Arguments are as of
    `simulator.native.loop.records.RecordPacking`."""

    def __init__(
        self,
        preparation: Preparation,
        memory: WordMemory,
        states: States,
        shared: SharedTemplates,
        meetings: MeetingTable,
    ) -> None:
        self._preparation = preparation
        self._stream = preparation.stream
        self._memory = memory
        self._states = states
        self._common = shared
        self._meetings = meetings
        self._begins: list[tuple[Any, Window]] = []

    def members(self, index: int, instruction: Instruction) -> dict[str, int]:
        """The members of the record of the instruction at `index`; none where Python executes."""
        return FORMS[instruction.row.name](self, index, instruction)

    @property
    def last_begin(self) -> int:
        """The number of the allocation whose record was made last."""
        return len(self._begins) - 1

    def begins(self, number: int, region: Any) -> None:
        """The allocation of this number has begun as a region."""
        self._common.begins(self._begins[number][0], region)

    def expect_begins(self, shadow: Shadow) -> None:
        """Make the regions of all allocations of the stream, before any of them begins."""
        for words, window in self._begins:
            region = shadow.spaces[window.buffer].expect(
                window.origin + window.offset, window.dtype.itemsize, window.shape, window.strides
            )
            if region is not None:
                self._common.begins(words, region)

    def _address(self, value: int | RegisterReference) -> int:
        """Where the value of an attribute is: its register, or a constant."""
        if isinstance(value, RegisterReference):
            return ctypes.addressof(self._stream.registers) + WORD * value.number
        return self._memory.table([value])

    def _nothing(self, index: int, instruction: Instruction) -> dict[str, int]:
        return {"kind": KINDS.index("nothing")}

    def _halt(self, index: int, instruction: Instruction) -> dict[str, int]:
        return {"kind": KINDS.index("halt")}

    def _move(self, index: int, instruction: Instruction) -> dict[str, int]:
        dst, src = instruction.values
        return {
            "kind": KINDS.index("move"),
            "target": self._address(dst),
            "left": self._address(src),
        }

    def _alu(self, index: int, instruction: Instruction) -> dict[str, int]:
        dst, operation, left, right = instruction.values
        return {
            "kind": KINDS.index("alu"),
            "code": list[RegisterOperation](OPERATIONS).index(operation),
            "target": self._address(dst),
            "left": self._address(left),
            "right": self._address(right),
        }

    def _loop_begin(self, index: int, instruction: Instruction) -> dict[str, int]:
        self._preparation.action(index)
        register, lower, upper, step, leave = instruction.values
        return {
            "kind": KINDS.index("loop_begin"),
            "target": self._address(register),
            "left": self._address(lower),
            "right": self._address(upper),
            "step": step,
            "bound": ctypes.addressof(self._preparation.loop_bound(index)),
            "to": leave,
        }

    def _loop_end(self, index: int, instruction: Instruction) -> dict[str, int]:
        (begin,) = instruction.values
        register, _, _, step, _ = self._stream.instructions[begin].values
        return {
            "kind": KINDS.index("loop_end"),
            "target": self._address(register),
            "step": step,
            "bound": ctypes.addressof(self._preparation.loop_bound(begin)),
            "to": begin + 1,
        }

    def _barrier(self, index: int, instruction: Instruction) -> dict[str, int]:
        core, barriers = self._preparation.state.number, self._preparation.barriers
        attendance = barriers.attendances[instruction.row.meeting(instruction.values, core)]
        return {
            "kind": KINDS.index("barrier"),
            "target": self._meetings.barrier(attendance, core),
        }

    def _branch(self, index: int, instruction: Instruction) -> dict[str, int]:
        condition, left, right, to = instruction.values
        codes = [*CONDITIONS, Condition.always]
        return {
            "kind": KINDS.index("branch"),
            "code": codes.index(condition),
            "left": self._address(left),
            "right": self._address(right),
            "to": to,
        }

    def _storage_begin(self, index: int, instruction: Instruction) -> dict[str, int]:
        (pattern,) = instruction.values
        window = self._preparation.window(instruction, pattern)
        if window.dynamic:
            return {}
        words = self._memory.words(BEGIN.words(fill=self._states.view(window.view(()))))
        self._begins.append((words, window))
        return {"kind": KINDS.index("storage_begin"), "target": ctypes.addressof(words)}


FORMS: dict[str, Callable[[ControlRecords, int, Instruction], dict[str, int]]] = {
    control.Nop.name: ControlRecords._nothing,
    control.DrainQueue.name: ControlRecords._nothing,
    control.Halt.name: ControlRecords._halt,
    control.RegisterMove.name: ControlRecords._move,
    control.RegisterAlu.name: ControlRecords._alu,
    control.LoopBegin.name: ControlRecords._loop_begin,
    control.LoopEnd.name: ControlRecords._loop_end,
    control.Branch.name: ControlRecords._branch,
    control.CoreBarrier.name: ControlRecords._barrier,
    control.StorageBegin.name: ControlRecords._storage_begin,
}
"""By row name: what finds the members of its records."""

CONTROL_RECORDS = frozenset(FORMS) | {control.SendReceive.name}
"""The rows that control a stream and that the loop executes; exchanges have operands, too."""
