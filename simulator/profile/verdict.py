"""The verdict on a run: what to do next, in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.profile.critical_lines import Advice, Together, shown_place, us
from simulator.timing.assumptions import LONG_RUNS

if TYPE_CHECKING:
    from simulator.profile.report import Profile

RUNS_PERCENT = 5.0
"""What longer runs must save for the verdict to speak of them."""

SHORT_ROWS = "short rows"
"""What advice names that puts neighbouring rows on one partition."""


def verdict(profile: Profile) -> str:
    """What to do next, in a sentence: the best advice, or what the floor of the run leaves."""
    best = profile.advice[0] if profile.advice else None
    said = "" if best is None else f"{title(best)}: {gain(best, profile.total_ns)}"
    least = profile.floor
    if least is None:
        said = said or f"{profile.bottleneck}; no change that was tried saves 1 %"
        return said + _runs(profile)
    ratio = profile.total_ns / least.least_ns
    at = f"at the floor of {least.name}, {ratio:.2f} times the least time; {least.helps}"
    lowers = best is not None and best.total_ns < least.least_ns
    return f"{at}, such as: {said}" if lowers else at


def _runs(profile: Profile) -> str:
    """What longer runs are worth, where no advice makes them and none saves more."""
    limit = next((one for one in profile.limits if one.name == LONG_RUNS), None)
    best = profile.advice[0].saved_percent if profile.advice else 0.0
    made = any(one.bottleneck == SHORT_ROWS for one in profile.advice)
    if made or limit is None or limit.saved_percent < max(RUNS_PERCENT, best):
        return ""
    run = f"{profile.dma.bytes_per_descriptor:,.0f} B"
    return (
        f"; short runs, {run} a descriptor: without their cost {us(limit.total_ns)} us; "
        "put neighbouring rows on one partition (how-to: hide DMA)"
    )


def title(advice: Advice) -> str:
    """What is wrong where, and what to do."""
    return f"{advice.bottleneck} at {shown_place(advice.file, advice.line)}; {advice.text}"


def gain(advice: Advice | Together, total: float) -> str:
    """What a change makes of a run of `total` ns."""
    gain = f"{us(total)} -> {us(advice.total_ns)} us, {advice.saved_percent:.0f} % less"
    return gain if advice.same_results else f"{gain}; results may change"
