"""Times that no schedule of a program's work can undercut."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.errors.calls import named_arguments
from isa.program import Program
from isa.target import resolve
from simulator.timing.assumptions import NOTHING
from simulator.timing.flow import Flow
from simulator.timing.plan import plan_program
from simulator.timing.sequence import StreamWalk
from simulator.watchdog import Watchdog


@named_arguments
def lower_bounds(program: Program, trace: Any = None) -> dict[str, float]:
    """Lower bounds in ns by name: each engine's own work, DMA bandwidth, HBM bandwidth.

    The work of an engine is what its instructions occupy it for at full rate, with tile loads
    hidden and all parts of the tensor engine's array in use; DMA is bytes at peak bandwidth,
    without descriptors. Engines and DMA are per core, the longest counts; HBM is shared by all.
    `trace` as for `simulate`. Raises what `simulate` raises.

    >>> from isa.files.text import assemble
    >>> program = assemble('''
    ... .program "nothing" target=trn2
    ... .core
    ... .stream sync
    ...   Nop
    ...   Halt
    ... ''')
    >>> lower_bounds(program)
    {'sync': 68.0, 'dma': 0.0, 'hbm': 0.0}
    """
    target = resolve(program.target)
    plan = plan_program(program, target, NOTHING)
    bounds: dict[str, float] = {}
    moved = [0.0] * len(program.cores)
    hbm = 0.0
    for stream, (core, engine) in enumerate(plan.streams):
        events = None if trace is None else trace.events(core, engine)
        sequence = StreamWalk(plan, stream, Flow(events), Watchdog(), lambda *_: None).run()
        of = plan.of[plan.slice(stream)] - plan.first_templates[stream]
        templates = plan.templates_of(stream)
        times = np.bincount(of, sequence.executed(of.size), minlength=len(templates))
        partly: dict[int, float] = {}
        for index, rows in sequence.rows:
            number = int(of[index])
            transfer = templates[number].transfer
            assert transfer is not None
            partly[number] = partly.get(number, 0.0) + min(1.0, rows / transfer.rows)
        work = [t.work(count * t.share) for t, count in zip(templates, times.tolist())]
        least = max(map(sum, zip(*work)))
        bounds[engine.name] = max(least, bounds.get(engine.name, 0.0))
        for number, (template, count) in enumerate(zip(templates, times.tolist())):
            if template.transfer is not None:
                share = partly.get(number, count)
                moved[core] += share * max(template.transfer.bytes, template.transfer.read_bytes)
                hbm += share * sum(template.transfer.hbm_bytes)
    bounds["dma"] = max(moved, default=0.0) / target.dma_bytes_per_ns
    bounds["hbm"] = hbm / target.hbm_bytes_per_ns_per_device.value
    return bounds
