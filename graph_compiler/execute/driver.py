"""The native loop over a program's records: calls, jumps, branches, and returns to the host.

A record is three 64-bit words: what to do, an operand, a second operand. A number from 0 on is the
kernel to call with the argument words at byte offset `operand`. Where `second` is more than 1, the
addresses of the argument words of so many parts are there: threads of a team share them. The
driver's state is `STATE`. It runs until the program ends, a record wants the host, or no iteration
is left, and leaves the number of the record behind the last one.
"""

from __future__ import annotations

from dataclasses import dataclass

from graph_compiler.host_kernels.bodies import FoldKernel, ScatterKernel, SortKernel
from graph_compiler.host_kernels.gemm import Gemm
from graph_compiler.host_kernels.loops import LoopNest
from graph_compiler.host_kernels.movement import DynamicCopy
from simulator.native.codegen.structure import Join, Structure, StructureAt, StructureText
from simulator.native.codegen.text import WORD, FunctionText, Value
from simulator.native.threads.workers import run_parts

HostKernel = LoopNest | Gemm | DynamicCopy | FoldKernel | SortKernel | ScatterKernel

END, HOST, JUMP, BRANCH = -1, -2, -3, -4
"""END: nothing is left. HOST: return. JUMP: go to record `operand`, by which `second`
iterations end. BRANCH: go to record
`second` where the byte at the pointer in the argument word at `operand` is 0, else on."""

STATE = Structure("next", "records", "words", "iterations", "team")
"""The number of the record to run next, pointers to records and argument words, how many
iterations loops may have, and the `TEAM` that runs parts: 0 for this thread alone."""

RECORD = Structure("what", "operand", "second")

_PARTS = Structure("function", "parts", "parts_count", "team")
"""The argument of `run_parts`: a function of its own, as code that is seldom run would take the
registers of the loop."""


class _Driver:
    """The text of the function that walks the records."""

    def __init__(self, f: StructureText) -> None:
        self.f = f
        self.state = StructureAt(f, STATE, f.words)
        self.number = Join(f, "record")
        self.job = StructureAt(f, _PARTS, f.scratch("i64", len(_PARTS.names)))

    def text(self) -> str:
        f, state, number = self.f, self.state, self.number
        team, records, words = (state.get(name, "ptr") for name in ("team", "records", "words"))
        self.job.set("team", team)
        number.bring(state.get("next"))
        f.jump(number.label)
        number.open()
        record = StructureAt(f, RECORD, f.element_at(records, number.value, RECORD.size))
        what, operand, second = (record.get(name) for name in RECORD.names)
        following = number.value + 1
        arguments = words + operand
        call, jump, branch, leave = (f.label(n) for n in ("call", "jump", "branch", "leave"))
        f.switch(what, [(END, leave), (HOST, leave), (JUMP, jump), (BRANCH, branch)], call)
        f.open(call)
        table = f.element_at(Value("@table", "ptr"), what, WORD)
        self._call(f.load(table, "ptr"), arguments, second)
        number.bring(following)
        f.jump(number.label)
        f.open(jump)
        left = state.add("iterations", 0 - second)
        number.bring(operand)
        f.branch(f.compare("icmp slt", left, f.integer(0)), leave, number.label)
        f.open(branch)
        flag = f.load(f.load(arguments, "ptr"), "i8")
        number.bring(f.select(f.compare("icmp eq", flag, f.like(flag, 0)), second, following))
        f.jump(number.label)
        number.close()
        f.open(leave)
        state.set("next", following)
        return f.text()

    def _call(self, function: Value, arguments: Value, count: Value) -> None:
        """A kernel with its words, or with those of every part."""
        f = self.f
        divided, whole, done = (f.label(name) for name in ("divided", "whole", "done"))
        f.branch(f.compare("icmp sgt", count, f.integer(1)), divided, whole)
        f.open(whole)
        f.call_address(function, arguments)
        f.jump(done)
        f.open(divided)
        for name, value in zip(_PARTS.names, (function, arguments, count)):
            self.job.set(name, value)
        f.line(f"call void @run_parts(ptr {self.job.pointer.text})")
        f.jump(done)
        f.open(done)


def _run_parts() -> tuple[list[str], str]:
    """The function that calls a kernel with the argument words of every part."""
    f = StructureText("run_parts")
    job = StructureAt(f, _PARTS, f.words)
    team, function, parts = (job.get(name, "ptr") for name in ("team", "function", "parts"))
    run_parts(f, team, function, parts, job.get("parts_count"))
    return f.inner()


@dataclass(frozen=True, eq=False)
class ProgramCode:
    """The micro-kernel that is a program's kernels and its driver. `key` says all of them;
    `kernels` may be None where they are known to be on disk."""

    key: str
    kernels: tuple[HostKernel, ...] | None

    def __repr__(self) -> str:
        return f"program {self.key}"

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProgramCode) and self.key == other.key

    def text(self, name: str) -> str:
        """The module. Raises LookupError where the kernels are not known."""
        if self.kernels is None:
            raise LookupError(self.key)
        declarations: dict[str, None] = {}
        definitions = []
        parts = []
        for number, kernel in enumerate(self.kernels):
            f = FunctionText(f"kernel{number}")
            kernel.emit(f)
            parts.append(f.inner("noalias"))
        for declared, definition in (*parts, _run_parts()):
            declarations.update(dict.fromkeys(declared))
            definitions.append(definition)
        functions = [f"ptr @kernel{number}" for number in range(len(self.kernels))] or ["ptr null"]
        table = f"@table = private constant [{len(functions)} x ptr] [{', '.join(functions)}]"
        driver = _Driver(StructureText(name)).text()
        return "\n".join([*declarations, table, *definitions, driver])
