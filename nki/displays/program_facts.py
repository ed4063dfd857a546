"""What can be read off a program: instructions per engine, memory use, guards."""

from __future__ import annotations

from collections import Counter
from typing import Any

from isa.enums import SEQUENCERS, Memory
from isa.memory import bytes_per_partition
from isa.program import Program
from isa.sections import Facts, Section, Table
from isa.target import resolve


def program_data(program: Program) -> dict[str, Any]:
    """Everything that `nki compile --json` says of a program."""
    target = resolve(program.target)
    return {
        "kernel": program.name,
        "target": program.target,
        "lnc": len(program.cores),
        "parameters": [_tensor_data(program, index) for index in program.parameters],
        "results": [_tensor_data(program, index) for index in program.results],
        "symbols": [{"name": s.name, "values": s.condition} for s in program.symbols],
        "guards": [text for _, text in program.guards],
        "instructions": program.instruction_count,
        "cores": [
            {
                "instructions": {
                    engine.name: dict(
                        sorted(Counter(i.row.name for i in core.streams.get(engine, [])).items())
                    )
                    for engine in SEQUENCERS
                },
                "queues": len(core.queues),
                "memory": {
                    memory.name: {
                        "peak_bytes_per_partition": _peak(core, memory),
                        "capacity_bytes_per_partition": bytes_per_partition(memory, target),
                    }
                    for memory in (Memory.sbuf, Memory.psum)
                },
            }
            for core in program.cores
        ],
    }


def _tensor_data(program: Program, index: int) -> dict[str, Any]:
    tensor = program.tensors[index]
    return {"name": tensor.name, "shape": [str(s) for s in tensor.shape], "dtype": tensor.dtype}


def _peak(core: Any, memory: Memory) -> int:
    """The end of the highest allocation, in bytes of a partition."""
    return max(
        (s.offset + s.bytes_per_partition for s in core.storages if s.memory == memory.value),
        default=0,
    )


def program_sections(data: dict[str, Any]) -> list[Section]:
    """The same for people."""
    cores = data["cores"]
    tensors = [
        (kind, t["name"], f"({', '.join(t['shape'])})", t["dtype"])
        for kind, found in (("input", data["parameters"]), ("output", data["results"]))
        for t in found
    ]
    sections: list[Section] = [
        Facts.of(
            "",
            kernel=data["kernel"],
            target=data["target"] + ("" if len(cores) == 1 else f", {len(cores)} cores"),
            instructions=f"{data['instructions']:,}",
        ),
        Table.of("tensors", ("", "name", "shape", "dtype"), tensors),
    ]
    if data["symbols"]:
        rows = [(s["name"], s["values"]) for s in data["symbols"]]
        sections.append(Table.of("launch symbols", ("name", "values"), rows))
    if data["guards"]:
        guards = ((guard,) for guard in data["guards"])
        sections.append(Table.of("guards", ("holds for every launch",), guards))
    for number, core in enumerate(cores):
        suffix = "" if len(cores) == 1 else f" of core {number}"
        sections += [_engines_table(core, suffix), _memory_table(core, suffix)]
    return sections


def _engines_table(core: dict[str, Any], suffix: str) -> Table:
    rows = []
    for engine, counts in core["instructions"].items():
        kinds = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        most = ", ".join(f"{name} {number:,}" for name, number in kinds[:4])
        rows.append((engine, f"{sum(counts.values()):,}", most + ", ..." * (len(kinds) > 4)))
    return Table.of(f"instructions{suffix}", ("engine", ">count", "most frequent"), rows)


def _memory_table(core: dict[str, Any], suffix: str) -> Table:
    rows = [
        (
            name,
            f"{memory['peak_bytes_per_partition']:,}",
            f"{memory['capacity_bytes_per_partition']:,}",
            f"{memory['peak_bytes_per_partition'] / memory['capacity_bytes_per_partition']:.1%}",
        )
        for name, memory in core["memory"].items()
    ]
    return Table.of(
        f"memory{suffix}, bytes of a partition", ("", ">peak", ">capacity", ">used"), rows
    )
