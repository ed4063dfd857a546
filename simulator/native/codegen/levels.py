"""What the code generator may use of a CPU: its vectors, FMA, the bfloat16 dot product.

Results are the same at every level; only speed differs.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache


class Form(IntEnum):
    """Of the operands of a product: fp32, pairs of bfloat16, or pairs for matrix registers."""

    wide = 0
    pairs = 1
    tiles = 2


@dataclass(frozen=True, slots=True)
class CpuLevel:
    """A set of CPU features.

    `cpu` and `features`: what LLVM is told. `fused`: there is FMA. `wide_registers`: 32 registers
    of 512 bits; `many_registers`: 32 registers of any size. `bf16_dot`: VDPBF16PS; `tiles`:
    matrix registers that multiply bfloat16. `pause`: the intrinsic of an instruction for loops that
    wait, if any.
    """

    name: str
    cpu: str
    features: str = ""
    fused: bool = False
    wide_registers: bool = False
    many_registers: bool = False
    bf16_dot: bool = False
    pause: str = ""
    tiles: bool = False

    @property
    def form(self) -> Form:
        """Of operands of bfloat16, for the widest of its instructions that multiply such."""
        return Form.tiles if self.tiles else Form.pairs if self.bf16_dot else Form.wide


GENERATING: ContextVar[CpuLevel | None] = ContextVar("generating", default=None)
"""The level for which a micro-kernel's text is being generated."""

_PAUSE = "llvm.x86.sse2.pause"

_TILES = ("amx-tile", "amx-bf16")
_WIDE = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")


_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
"""Linux, Documentation/arch/x86/xstate.rst: ARCH_REQ_XCOMP_PERM of XFEATURE_XTILEDATA."""


@cache
def permitted() -> bool:
    """Whether this process may use the registers; it asks the system for them."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    try:
        return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0
    except (AttributeError, OSError):
        return False


def of_host(triple: str, cpu: str, features: Mapping[str, bool], flattened: str) -> CpuLevel:
    """The level of a CPU that LLVM describes so."""
    if triple.startswith(("aarch64", "arm64")):
        return CpuLevel("host", cpu, flattened, fused=True, many_registers=True)
    if not triple.startswith("x86_64"):
        return CpuLevel("host", cpu, flattened)
    wide = all(features.get(name, False) for name in _WIDE)
    return CpuLevel(
        "host",
        cpu,
        flattened,
        fused=bool(features.get("fma") and features.get("avx2")),
        wide_registers=wide,
        many_registers=wide,
        bf16_dot=wide and bool(features.get("avx512bf16")),
        pause=_PAUSE,
        tiles=wide and all(features.get(name, False) for name in _TILES) and permitted(),
    )


def levels(triple: str, host: CpuLevel) -> tuple[CpuLevel, ...]:
    """The levels of its family that a CPU can run, itself last.

    Those of x86 are the ones of the System V psABI, section 3.1.1 (x86-64, -v3 and -v4).
    """
    found = []
    if triple.startswith("x86_64"):
        found.append(CpuLevel("sse2", "x86-64", pause=_PAUSE))
        if host.fused:
            found.append(CpuLevel("avx2", "x86-64-v3", fused=True, pause=_PAUSE))
        if host.wide_registers:
            found.append(
                CpuLevel(
                    "avx512",
                    "x86-64-v4",
                    fused=True,
                    wide_registers=True,
                    many_registers=True,
                    pause=_PAUSE,
                )
            )
        if host.tiles:
            found.append(replace(host, name="no_tiles", tiles=False))
    return (*found, host)
