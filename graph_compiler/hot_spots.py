"""Where a graph spends its time: by instruction, by operator, by layer, by line of the model.

Times are those of a profile's lines. Fused element-wise work counts for the instruction at which it
is computed into memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graph_compiler.lower.places import name_of

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction, Module
    from simulator.profile import Profile


@dataclass(frozen=True, slots=True)
class HotSpot:
    """Part of a graph. `path_ns`: of the critical path, so that the spots of one kind, with what
    belongs to no instruction, add up to the whole time; `busy_ns`: what engines and transfers are
    occupied, beside each other."""

    name: str
    path_ns: float
    path_percent: float
    busy_ns: float


def _operator(item: Instruction) -> str:
    return item.opcode


def _layer(item: Instruction) -> str:
    """The scope in which the model computes an instruction, without its last part, the function."""
    scope = item.metadata.op_name if item.metadata is not None else ""
    return (scope or "").rpartition("/")[0]


_KINDS: dict[str, Callable[[Any], str]] = {
    "instruction": lambda item: str(item.name),
    "operator": _operator,
    "layer": _layer,
    "source": lambda item: str(item.source),
}
KINDS = tuple(_KINDS)
"""By what hot spots are found."""


def hot_spots(module: Module, profile: Profile, by: str = "instruction") -> list[HotSpot]:
    """What a profile of the compiled graph says by "instruction", "operator", "layer" (the scope of
    `op_name`) or "source" (file and line of the model), longest first. "" has what states none.

    >>> import numpy as np
    >>> from graph_compiler import compile, parse_text
    >>> module = parse_text("HloModule m\\nENTRY e {\\n x = f32[6] parameter(0)\\n"
    ...     " ROOT r = f32[6] tanh(x)\\n}")
    >>> _, profile = compile(module, "trn2").profile(np.zeros(6, np.float32))
    >>> [spot.name for spot in hot_spots(module, profile, "operator") if spot.busy_ns]
    ['tanh']
    """
    if by not in _KINDS:
        from isa.errors import NeuronError

        raise NeuronError("value-not-allowed", f"by is {by!r}; it is one of {', '.join(KINDS)}")
    items = {item.name: item for part in module.computations for item in part.instructions}

    def named(text: str) -> str:
        item = items.get(name_of(text))
        return "" if item is None else _KINDS[by](item)

    path: dict[str, float] = {}
    busy: dict[str, float] = {}
    for step in profile.path_lines:
        path[named(step.text)] = path.get(named(step.text), 0.0) + step.ns
    for line in profile.lines:
        busy[named(line.text)] = busy.get(named(line.text), 0.0) + line.total_ns
    whole = profile.total_ns or 1.0
    spots = [
        HotSpot(name, path.get(name, 0.0), 100 * path.get(name, 0.0) / whole, busy.get(name, 0.0))
        for name in {**path, **busy}
    ]
    return sorted(spots, key=lambda spot: (-spot.path_ns, -spot.busy_ns, spot.name))
