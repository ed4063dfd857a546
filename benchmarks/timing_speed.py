"""How fast programs are timed: instructions a second of the event loop, and of a whole report.

Run: python benchmarks/timing_speed.py [INSTRUCTIONS...]

Programs are loops that load two tiles in front of each product, as version 2 of the SDK's tutorial
does, of about as many executed instructions as named (10^4 to 10^7 without any), and the same
without loops: as many static instructions, each with its own addresses. Seconds are those of the
processor, of the better of two runs: the first one also waits for the system to hand out memory.
Numbers come for times alone, with the critical path, with the spans of every instruction, and for a
report with its page.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "simulator"))

import numpy as np
from timing_programs import matmul_loads_inside

from isa.enums import DgeMode
from isa.files.stream import Stream, StreamColumns, in_columns
from isa.machine.control import LoopBegin, LoopEnd
from isa.program import Program
from isa.target import resolve
from simulator.profile import profile
from simulator.profile.page.page import page
from simulator.timing import simulate
from simulator.timing.assumptions import NOTHING
from simulator.timing.flow import Flow
from simulator.timing.plan import plan_program
from simulator.timing.sequence import StreamWalk
from simulator.watchdog import Watchdog

DEPTH, EACH = 64, 6.16
"""Products of a tile of the result, and executed instructions a product, in all."""


def main() -> None:
    wanted = [int(float(a)) for a in sys.argv[1:]] or [10**4, 10**5, 10**6, 10**7]
    print(f"{'instructions':>21}{'times':>12}{'and path':>12}{'and spans':>12}   million a second")
    simulate(_program(max(wanted)), keep_spans=False)  # LLVM loads, or numba compiles
    simulate(unrolled(_program(max(wanted))), keep_spans=False)
    for what, made in (("loops", _program), ("static", lambda n: unrolled(_program(n)))):
        for count in wanted:
            program = made(count)
            rates, instructions = [], 0
            for options in ({"keep_path": False}, {"keep_path": True}, {"keep_spans": True}):
                kept: dict[str, Any] = {"keep_spans": False, **options}
                seconds = []
                for _ in range(2):
                    began = time.process_time()
                    timeline = simulate(program, **kept)
                    seconds.append(time.process_time() - began)
                    instructions = timeline.instructions
                    del timeline
                rates.append(f"{instructions / min(seconds) / 1e6:12.2f}")
            print(f"{what:>7}{instructions:14,}{''.join(rates)}", flush=True)
    for what, program in (("loops", _program(10**6)), ("static", unrolled(_program(10**6)))):
        _report(what, program)


def _program(count: int) -> Any:
    return matmul_loads_inside(max(1, round(count / EACH / DEPTH)), DEPTH, DgeMode.none)


def unrolled(program: Program) -> Program:
    """The program without its loops: instructions as the compiler hands over those of an unrolled
    source, in columns, with operands that move from one to the next."""
    plan = plan_program(program, resolve(program.target), NOTHING)
    cores = [replace(core, streams={}) for core in program.cores]
    for stream, (core, engine) in enumerate(plan.streams):
        walk = StreamWalk(plan, stream, Flow(None), Watchdog(), lambda *_: None)
        steps = walk.run().instructions()
        columns = in_columns(program.cores[core].streams[engine])
        loops = [one.row in (LoopBegin, LoopEnd) for one in columns.templates]
        order = columns.order[steps]
        kept = np.flatnonzero(~np.array(loops)[order])
        steps, order = steps[kept], order[kept]
        within = np.zeros_like(columns.order)
        for places in columns.places():
            within[places] = np.arange(places.size)
        number = np.cumsum(~np.array(loops)) - 1
        numbers = []
        for template, rows in enumerate(columns.numbers):
            uses = rows[within[steps[order == template]]]
            uses[:, 1:] += 4096 * (np.arange(len(uses)) % 4)[:, None]
            numbers += [] if loops[template] else [uses]
        templates = [one for one, loop in zip(columns.templates, loops) if not loop]
        found = StreamColumns(templates, columns.semaphores, number[order], numbers)
        cores[core].streams[engine] = Stream(found)
    return replace(program, cores=cores)


def _report(what: str, program: Program) -> None:
    """Print how long a report of so many instructions takes, with its text and its page."""
    began = time.process_time()
    timeline = simulate(program)
    found = profile(program, timeline)
    text = str(found)
    size = len(page(program, timeline, found))
    seconds = time.process_time() - began
    print(
        f"a report, {what}, of {timeline.instructions:,} instructions: {seconds:.1f} s; "
        f"{len(text):,} characters, a page of {size / 1e6:.1f} MB"
    )


if __name__ == "__main__":
    main()
