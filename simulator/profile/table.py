"""A profile as plain text."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.profile.report import Profile


def render(profile: Profile, lines: int) -> str:
    """The profile as a plain table of at most 100 columns, with its `lines` hottest lines."""
    parts = [_head(profile), _engines(profile), _dma(profile), _memory(profile)]
    if profile.lines and lines:
        parts.append(_lines(profile, lines))
    if profile.provenance:
        notes = [line for note in profile.provenance for line in _note(note)]
        parts.append("\n".join(["  not validated by any published measurement", *notes]))
    return "\n\n".join(parts) + "\n"


def _note(text: str) -> list[str]:
    return textwrap.wrap(text, 100, initial_indent="  - ", subsequent_indent="    ")


def _head(profile: Profile) -> str:
    cores = f", {profile.cores} cores" if profile.cores > 1 else ""
    rows = [
        f"{profile.kernel} on {profile.target}{cores}",
        f"  time    {profile.total_ns / 1e3:,.2f} us, "
        f"and about {profile.overhead_ns / 1e3:,.1f} us to start and stop a kernel",
        *_wrapped(f"  bound   {profile.bound}: {profile.reason}"),
    ]
    if profile.flops:
        rows.append(
            f"  matmul  {profile.flops / 1e9:,.3f} GFLOP in {profile.matmul_dtype}, "
            f"{profile.mfu_percent:.1f} % of {profile.peak_tflops:g} TFLOP/s; "
            f"{profile.arithmetic_intensity:,.0f} flop/byte (balance {profile.balance:,.0f})"
        )
    if profile.throttled_ns:
        rows.append(f"  TensorE throttling costs {profile.throttled_ns / 1e3:,.2f} us")
    if profile.table_loads:
        rows.append(
            f"  {profile.table_loads:,} activation-table loads, "
            f"{profile.table_load_ns / 1e3:,.2f} us"
        )
    return "\n".join(rows)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 100, subsequent_indent=" " * 10)


def _engines(profile: Profile) -> str:
    rows = ["  engine     GHz  instructions     busy cycles  busy %  active %  issue %  waits"]
    for engine in profile.engines:
        waits = ""
        if engine.waited_ns:
            waits = f"{engine.waited_ns / 1e3:,.1f} us"
            waits += f", {engine.waits_for}" if engine.waits_for else ""
        row = (
            f"  {engine.name:8} {engine.clock_ghz:5.2f}  {engine.instructions:12,}  "
            f"{engine.busy_cycles:14,.0f}  {engine.busy_percent:6.1f}  "
            f"{engine.active_percent:8.1f}  {engine.sequencer_percent:7.1f}  {waits}"
        )
        rows.append(row.rstrip())
    return "\n".join(rows)


def _dma(profile: Profile) -> str:
    dma = profile.dma
    rows = [
        f"  DMA      active {dma.active_percent:.1f} %, {dma.bytes_per_ns:,.1f} of "
        f"{dma.peak_bytes_per_ns:,.0f} GB/s, {dma.transfers:,} transfers, "
        f"{dma.descriptors:,} descriptors of {dma.bytes_per_descriptor:,.0f} B"
    ]
    rows += [f"           {where:12} {size:16,} B" for where, size in sorted(dma.bytes.items())]
    return "\n".join(rows)


def _memory(profile: Profile) -> str:
    return "\n".join(
        f"  {memory.name.upper():8} {memory.peak_bytes_per_partition:,} of "
        f"{memory.bytes_per_partition:,} B a partition "
        f"({100 * memory.peak_bytes_per_partition / memory.bytes_per_partition:.0f} %)"
        for memory in profile.memories
    )


def _lines(profile: Profile, limit: int) -> str:
    rows = ["  hot lines (time that their instructions occupy, by engine)"]
    for found in profile.lines[:limit]:
        engines = ", ".join(
            f"{name} {ns / 1e3:,.2f}"
            for name, ns in sorted(found.by_engine.items(), key=lambda entry: -entry[1])
        )
        file = found.file.rpartition("/")[2]
        rows.append(f"  {found.total_ns / 1e3:12,.2f} us  {file}:{found.line}  {found.text[:48]}")
        rows.append(f"                   {engines}")
    left = len(profile.lines) - limit
    if left > 0:
        rows.append(f"  and {left} more lines")
    return "\n".join(rows)
