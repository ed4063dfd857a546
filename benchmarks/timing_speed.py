"""How fast programs are timed: instructions a second of the event loop, and of a whole report.

Run: python benchmarks/timing_speed.py [INSTRUCTIONS...]

Programs are loops that load two tiles in front of each product, as version 2 of the SDK's tutorial
does, of about as many executed instructions as named (10^4 to 10^7 without any). Seconds are those
of the processor. Numbers come for times alone, with the critical path, with the spans of every
instruction, and for a report with its page.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "simulator"))

from timing_programs import matmul_loads_inside

from isa.enums import DgeMode
from simulator.profile import profile
from simulator.profile.page.page import page
from simulator.timing import simulate

DEPTH, EACH = 64, 6.16
"""Products of a tile of the result, and executed instructions a product, in all."""


def main() -> None:
    wanted = [int(float(a)) for a in sys.argv[1:]] or [10**4, 10**5, 10**6, 10**7]
    print(f"{'instructions':>14}{'times':>12}{'and path':>12}{'and spans':>12}   million a second")
    simulate(_program(max(wanted)), keep_spans=False)  # numba loads, or compiles
    for count in wanted:
        program = _program(count)
        rates, instructions = [], 0
        for options in ({"keep_path": False}, {"keep_path": True}, {"keep_spans": True}):
            began = time.process_time()
            timeline = simulate(program, **{"keep_spans": False, **options})
            seconds = time.process_time() - began
            instructions = timeline.instructions
            rates.append(f"{instructions / seconds / 1e6:12.2f}")
        print(f"{instructions:14,}{''.join(rates)}", flush=True)
    _report(10**6)


def _program(count: int) -> Any:
    return matmul_loads_inside(max(1, round(count / EACH / DEPTH)), DEPTH, DgeMode.none)


def _report(count: int) -> None:
    """Print how long a report of so many instructions takes, with its text and its page."""
    program = _program(count)
    began = time.process_time()
    timeline = simulate(program)
    found = profile(program, timeline)
    text = str(found)
    size = len(page(program, timeline, found))
    seconds = time.process_time() - began
    print(
        f"a report of {timeline.instructions:,} instructions: {seconds:.1f} s; "
        f"{len(text):,} characters, a page of {size / 1e6:.1f} MB"
    )


if __name__ == "__main__":
    main()
