"""Times that no schedule of a program's work can undercut."""

from __future__ import annotations

from typing import Any

from isa.program import Program
from isa.target import Target, resolve
from simulator.timing import plan as p
from simulator.timing.flow import Flow
from simulator.timing.plan import StreamPlan

Executed = dict[int, float]


def lower_bounds(program: Program, trace: Any = None) -> dict[str, float]:
    """Lower bounds in ns by name: each engine's own work, DMA bandwidth, HBM bandwidth.

    The work of an engine is what its instructions occupy it for at full rate, with tile loads
    hidden; DMA is bytes at peak bandwidth, without descriptors. Engines and DMA are per core, the
    longest counts; HBM is shared by all. `trace` as for `simulate`.
    """
    target = resolve(program.target)
    bounds: dict[str, float] = {}
    hbm = 0.0
    for number, core in enumerate(program.cores):
        moved = 0.0
        for engine, plan in p.plan_core(core, target).items():
            events = None if trace is None else trace.events(number, engine)
            executed, rows = executions(plan, Flow(events))
            work = _work(plan, executed)
            bounds[engine.name] = max(work, bounds.get(engine.name, 0.0))
            for index, code in enumerate(plan.code):
                if code[0] == p.DMA:
                    transfer = code[5].transfer
                    share = rows.get(index, transfer.rows * executed[index]) / transfer.rows
                    moved += share * max(transfer.bytes, transfer.read_bytes)
                    reads, writes = transfer.hbm_bytes
                    hbm += share * (reads + writes)
        bounds["dma"] = max(moved / _dma_rate(target), bounds.get("dma", 0.0))
    bounds["hbm"] = hbm / target.hbm_bytes_per_ns_per_device.value
    return bounds


def _dma_rate(target: Target) -> float:
    return target.dma_bytes_per_ns


def _work(plan: StreamPlan, executed: list[int]) -> float:
    """The longer of what the data path and what the sequencer has to do."""
    data_path = sequencer = 0.0
    for code, times in zip(plan.code, executed):
        if p.on_data_path(code):
            data_path += code[3] * times
        elif code[0] != p.LOAD_TILE:
            sequencer += code[3] * times
    return max(data_path, sequencer)


def executions(plan: StreamPlan, flow: Flow) -> tuple[list[int], dict[int, int]]:
    """How often each instruction of a stream runs; rows moved in all by each dynamic transfer.

    Follows control flow only: between two instructions that matter to it, it goes in one step.
    """
    code = plan.code
    stops = [i for i, c in enumerate(code) if _steers(c)] + [len(code)]
    following = {}
    position = 0
    for index in range(len(code) + 1):
        if index > stops[position]:
            position += 1
        following[index] = stops[position]
    starts = [0] * (len(code) + 1)
    ends = [0] * (len(code) + 1)
    rows: dict[int, int] = {}
    loops: list[list[int]] = []
    pc = 0
    while pc < len(code):
        starts[pc] += 1
        pc = following[pc]
        ends[pc] += 1
        if pc == len(code):
            break
        kind, *_, extra = code[pc]
        at, pc = pc, pc + 1
        if kind == p.LOOP_END:
            loop = loops[-1]
            loop[2] += 1
            if flow.follows_registers:
                flow.next_round(code[loop[1]][5].values)
            if loop[2] < loop[0]:
                pc = loop[1] + 1
            else:
                loops.pop()
        elif kind == p.LOOP_BEGIN:
            trips = flow.trips(extra.values)
            if trips > 0:
                loops.append([trips, at, 0])
            else:
                pc = int(extra.values[4])
        elif kind == p.BRANCH:
            if flow.taken(extra.values):
                pc = int(extra.values[3])
        elif kind == p.DMA:
            usual = extra.transfer.rows
            rows[at] = rows.get(at, 0) + min(usual, flow.rows(usual))
        elif kind == p.HALT:
            break
        elif flow.follows_registers:
            flow.register_instruction(extra.row, extra.values)
    executed, running = [], 0
    for index in range(len(code)):
        running += starts[index]
        executed.append(running)
        running -= ends[index]
    return executed, rows


def _steers(code: Any) -> bool:
    kind, extra = code[0], code[5]
    if kind == p.DMA:
        return bool(extra.transfer.dynamic)
    return kind in (p.LOOP_BEGIN, p.LOOP_END, p.BRANCH, p.HALT, p.REGISTER) or (
        kind == p.MEMORY_REGISTER and extra.row in p.REGISTER_ROWS
    )
