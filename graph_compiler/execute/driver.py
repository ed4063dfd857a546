"""The native loop over a program's records: calls, jumps, branches, and returns to the host.

A record is three 64-bit words: what to do, an operand, a second operand. A number from 0 on is
the kernel to call with the argument words at byte offset `operand`, or, where `second` is more
than 1, with those of so many parts, whose addresses are there: threads of a team share them. The
driver's state is `STATE`. It runs until the program ends, a record wants the host, or no
iteration is left, and leaves the number of the record behind the last one.
"""

from __future__ import annotations

from dataclasses import dataclass

from graph_compiler.execute.bodies import Fold, Scatter, Sort
from graph_compiler.execute.gemm import Gemm
from graph_compiler.execute.loops import Loop
from graph_compiler.execute.movement import DynamicCopy
from graph_compiler.execute.registers import KernelText
from simulator.native.structure import Record, Structure, StructureText
from simulator.native.workers import run_parts

Kernel = Loop | Gemm | DynamicCopy | Fold | Sort | Scatter

END, HOST, JUMP, BRANCH = -1, -2, -3, -4
"""END: nothing is left. HOST: return. JUMP: go to record `operand`, by which `second`
iterations end. BRANCH: go to record
`second` where the byte at the pointer in the argument word at `operand` is 0, else on."""

STATE = Structure("next", "records", "words", "iterations", "team")
"""The number of the record to run next, pointers to records and argument words, how many
iterations loops may have, and the `TEAM` that runs parts: 0 for this thread alone."""

_PARTS = Structure("function", "parts", "parts_count", "team")

_TEXT = """
@table = private constant [{count} x ptr] [{functions}]
define void @{name}(ptr %state) {{
entry:
  %job = alloca [4 x i64]
  %job1 = getelementptr i64, ptr %job, i64 1
  %job2 = getelementptr i64, ptr %job, i64 2
  %job3 = getelementptr i64, ptr %job, i64 3
  %p4 = getelementptr i64, ptr %state, i64 4
  %team = load i64, ptr %p4
  store i64 %team, ptr %job3
  %first = load i64, ptr %state
  %p1 = getelementptr i64, ptr %state, i64 1
  %records = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %state, i64 2
  %words = load ptr, ptr %p2
  %p3 = getelementptr i64, ptr %state, i64 3
  br label %head
head:
  %pc = phi i64 [%first, %entry], [%next, %done], [%operand, %jump], [%target, %branch]
  %record = getelementptr [3 x i64], ptr %records, i64 %pc
  %what = load i64, ptr %record
  %a = getelementptr i64, ptr %record, i64 1
  %operand = load i64, ptr %a
  %b = getelementptr i64, ptr %record, i64 2
  %second = load i64, ptr %b
  %next = add i64 %pc, 1
  %arguments = getelementptr i8, ptr %words, i64 %operand
  switch i64 %what, label %call [
    i64 {END}, label %leave
    i64 {HOST}, label %leave
    i64 {JUMP}, label %jump
    i64 {BRANCH}, label %branch
  ]
call:
  %entryplace = getelementptr ptr, ptr @table, i64 %what
  %function = load ptr, ptr %entryplace
  %several = icmp sgt i64 %second, 1
  br i1 %several, label %divided, label %whole
whole:
  call void %function(ptr %arguments)
  br label %done
divided:
  store ptr %function, ptr %job
  store ptr %arguments, ptr %job1
  store i64 %second, ptr %job2
  call void @run_parts(ptr %job)
  br label %done
done:
  br label %head
jump:
  %left = load i64, ptr %p3
  %fewer = sub i64 %left, %second
  store i64 %fewer, ptr %p3
  %out = icmp slt i64 %fewer, 0
  br i1 %out, label %leave, label %head
branch:
  %flagplace = load ptr, ptr %arguments
  %flag = load i8, ptr %flagplace
  %zero = icmp eq i8 %flag, 0
  %target = select i1 %zero, i64 %second, i64 %next
  br label %head
leave:
  store i64 %next, ptr %state
  ret void
}}
"""


def _run_parts() -> str:
    """The function that calls a kernel with the argument words of every part."""
    f = StructureText("run_parts")
    job = Record(f, _PARTS, f.words)
    team, function, parts = (job.get(name, "ptr") for name in ("team", "function", "parts"))
    run_parts(f, team, function, parts, job.get("parts_count"))
    return f.text().replace("define void", "define internal void", 1)


@dataclass(frozen=True, eq=False)
class ProgramCode:
    """The micro-kernel that is a program's kernels and its driver. `key` says all of them;
    `kernels` may be None where they are known to be on disk."""

    key: str
    kernels: tuple[Kernel, ...] | None

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
        for number, kernel in enumerate(self.kernels):
            f = KernelText(f"kernel{number}")
            kernel.emit(f)
            declared, definition = f.parts()
            declarations.update(dict.fromkeys(declared))
            definitions.append(definition.replace("define void", "define internal void", 1))
        functions = ", ".join(f"ptr @kernel{number}" for number in range(len(self.kernels)))
        driver = _TEXT.format(
            name=name,
            count=max(1, len(self.kernels)),
            functions=functions or "ptr null",
            END=END,
            HOST=HOST,
            JUMP=JUMP,
            BRANCH=BRANCH,
        )
        return "\n".join([*declarations, *definitions, _run_parts(), driver])
