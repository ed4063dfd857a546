"""Running compiled programs: functional execution, checks, timing, profiles.

`run(program, inputs)` executes a bound `isa.program.Program`; see `simulator.execute`.
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
