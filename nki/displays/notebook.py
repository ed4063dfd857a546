"""The displays of tensors, kernels and compiled programs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.memory import bytes_per_partition
from isa.program import Program
from isa.sections import Facts, Section, Table, html
from isa.target import resolve
from nki.displays.memory_map import memory_map
from nki.displays.program_facts import program_data, program_sections

_CORNER = 6
"""Rows and columns of a tensor that are shown."""


def kernel_display(
    function: Callable[..., Any], target: str | None, cores: int, programs: Iterable[Program]
) -> str:
    """A kernel's signature, its documentation's first line, and what it is compiled for."""
    document = (inspect.getdoc(function) or "").partition("\n\n")[0]
    rows = []
    for program in programs:
        inputs = ", ".join(_tensor(program, index) for index in program.parameters)
        rows.append((inputs, program.target, len(program.cores), f"{program.instruction_count:,}"))
    sections: list[Section] = [
        Facts.of(
            "",
            kernel=f"{function.__name__}{inspect.signature(function)}",
            about=document or None,
            target=target,
            cores=cores if cores != 1 else None,
        )
    ]
    if rows:
        columns = ("inputs", "target", ">cores", ">instructions")
        sections.append(Table.of("compiled for", columns, rows))
    return html(sections)


def _tensor(program: Program, index: int) -> str:
    tensor = program.tensors[index]
    return f"{tensor.name} {tensor.dtype}[{', '.join(map(str, tensor.shape))}]"


def program_display(program: Program) -> str:
    """A compiled program: tensors, engines, and maps of the memories of each core."""
    target = resolve(program.target)
    maps = []
    for number, core in enumerate(program.cores):
        suffix = f" of core {number}" if len(program.cores) > 1 else ""
        for memory in (Memory.sbuf, Memory.psum):
            here = [one for one in core.storages if one.memory == memory.value]
            capacity = bytes_per_partition(memory, target)
            maps.append(memory_map(here, capacity, memory.name.upper() + suffix))
    return html(program_sections(program_data(program))) + "<br>".join(maps)


def tensor_display(
    name: str,
    dtype: str,
    shape: tuple[Any, ...],
    memory: Memory,
    array: np.ndarray[Any, Any] | None,
) -> str:
    """A view: where it is, and of what it holds statistics and the corner, where that is known."""
    place = memory.value
    if memory in (Memory.sbuf, Memory.psum):
        size = math.prod(shape[1:]) * DTYPES[dtype].size
        place += f", {shape[0]} partitions of {size} bytes"
    about = Facts.of("", tensor=f"{name} {dtype}{list(shape)}", memory=place)
    sections: list[Section] = [about]
    if array is not None and array.size:
        sections += [_statistics(array), _corner(array)]
    return html(sections)


def _statistics(array: np.ndarray[Any, Any]) -> Facts:
    numbers = array.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    return Facts.of(
        "",
        minimum=f"{finite.min():.6g}" if finite.size else None,
        mean=f"{finite.mean():.6g}" if finite.size else None,
        maximum=f"{finite.max():.6g}" if finite.size else None,
        not_finite=f"{numbers.size - finite.size:,}" if finite.size < numbers.size else None,
    )


def _corner(array: np.ndarray[Any, Any]) -> Table:
    """The first rows and columns, of the first of further dimensions."""
    flat = array.reshape(array.shape[0] if array.ndim else 1, -1)
    rows = [
        [f"{value:.5g}" for value in row[:_CORNER].astype(np.float64)]
        + ["..."] * (flat.shape[1] > _CORNER)
        for row in flat[:_CORNER]
    ]
    if flat.shape[0] > _CORNER:
        rows.append(["..."] * len(rows[0]))
    return Table.of("", (">",) * len(rows[0]), rows)
