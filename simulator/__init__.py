"""Running compiled programs: functional execution, checks, timing, profiles.

`run(program, inputs)` executes a bound `isa.program.Program`; see `simulator.execute`.

1. Loading: `straight_line` optimises programs without control flow; `device_state`, `memory` and
   `tensors` allocate; `prepare` binds each instruction (`uses`: by template) to `views` of operands
   and to code (`kernels`).
2. Code of instructions: `oracle` in NumPy, over `numerics`; `native` the same compiled; `control`
   for control instructions; `indirect_columns` for operands that indices pick.
3. Running: `execute` lets `streams` take turns, or the native loop; `parallel_slices` runs two
   halves. `exchange` and `ranks` connect cores and processes, `printed` writes what a program
   prints, `watchdog` ends it.
4. Checks: `checks` of a run, `races` of programs and runs, `malformed` for broken files.
5. Times: `timing` simulates time with the control trace, `profile` reports it. `runtime` is the
   vendor's runtime interface.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.execute import ControlTrace, RunResult, run

__all__ = ["ControlTrace", "RunResult", "run"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from simulator import execute

        return getattr(execute, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
