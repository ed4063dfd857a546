"""What the code generator may use of a CPU: its vectors, FMA, the bfloat16 dot product.

Results are the same at every level; only speed differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Level:
    """A set of CPU features.

    `cpu` and `features`: what LLVM is told. `fused`: there is FMA. `wide_registers`: 32 registers
    of 512 bits; `many_registers`: 32 registers of any size. `bf16_dot`: VDPBF16PS.
    """

    name: str
    cpu: str
    features: str = ""
    fused: bool = False
    wide_registers: bool = False
    many_registers: bool = False
    bf16_dot: bool = False


GENERATING: ContextVar[Level | None] = ContextVar("generating", default=None)
"""The level for which a micro-kernel's text is being generated."""

_WIDE = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")


def of_host(triple: str, cpu: str, features: Mapping[str, bool], flattened: str) -> Level:
    """The level of a CPU that LLVM describes so."""
    if triple.startswith(("aarch64", "arm64")):
        return Level("host", cpu, flattened, fused=True, many_registers=True)
    if not triple.startswith("x86_64"):
        return Level("host", cpu, flattened)
    wide = all(features.get(name, False) for name in _WIDE)
    return Level(
        "host",
        cpu,
        flattened,
        fused=bool(features.get("fma") and features.get("avx2")),
        wide_registers=wide,
        many_registers=wide,
        bf16_dot=wide and bool(features.get("avx512bf16")),
    )


def levels(triple: str, host: Level) -> tuple[Level, ...]:
    """The levels of its family that a CPU can run, itself last.

    Those of x86 are the ones of the System V psABI, section 3.1.1 (x86-64, -v3 and -v4).
    """
    found = []
    if triple.startswith("x86_64"):
        found.append(Level("sse2", "x86-64"))
        if host.fused:
            found.append(Level("avx2", "x86-64-v3", fused=True))
        if host.wide_registers:
            found.append(
                Level("avx512", "x86-64-v4", fused=True, wide_registers=True, many_registers=True)
            )
    return (*found, host)
