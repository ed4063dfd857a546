"""What a program declares: its tensors in HBM, and the storage on chip."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from isa.enums import Memory
from isa.program import CoreProgram, Program, SourceLocation, TensorDeclaration
from isa.storages import StorageForm, Storages, numbered_name, of_forms
from nki.ir.begins import begun_by
from nki.ir.locations import resolve
from nki.ir.nodes import Node, Tensor, TracedKernel, operations
from nki.passes.emit.location_table import LocationTable

_ROLES = {"input": "input", "output": "output", "inout": "inout", "constant": "constant"}


def hbm_tensors(kernel: TracedKernel) -> dict[Tensor, int]:
    """The tensors of a kernel that its program declares, with their numbers there."""
    hbm = [tensor for tensor in kernel.tensors if not tensor.memory.on_chip]
    return {tensor: number for number, tensor in enumerate(hbm)}


def program_of(
    kernel: TracedKernel,
    cores: list[CoreProgram],
    index: dict[Tensor, int],
    locations: LocationTable,
) -> Program:
    """The program of a kernel whose cores are lowered; `index` numbers its tensors in HBM."""
    return Program(
        kernel.name,
        kernel.target,
        cores,
        [_declaration(tensor, index, locations) for tensor in index],
        [index[tensor] for tensor in kernel.parameters],
        list(kernel.parameter_names),
        [index[tensor] for tensor in kernel.results],
        list(kernel.symbols),
        [replace(guard, location=locations.index(guard.location)) for guard in kernel.guards],
        [resolve(location) or _NOWHERE for location in locations.locations],
    )


_NOWHERE = SourceLocation("", 0, 0, 0, "", "")


def storage_records(
    body: list[Node], locations: LocationTable, placement: dict[Tensor, tuple[int, int]]
) -> Storages:
    """The on-chip allocations of a body, in the order in which they begin."""
    known: dict[Any, int] = {}
    forms: list[StorageForm] = []
    which, numbers, offsets = [], [], []
    for op in operations(body):
        if (t := begun_by(op)) is not None and (place := placement.get(t)):
            location = t.location or op.location  # whose hash would walk a code object
            stem, number = (f"{t.label}.", t.copy) if t.copy else numbered_name(t.label)
            key = stem, t.memory, t.dtype, t.shape, place[0], id(location)
            kind = known.get(key)
            if kind is None:
                kind = known[key] = len(forms)
                forms.append(_form(stem, t, place[0], locations.index(location)))
            which.append(kind)
            numbers.append(number)
            offsets.append(place[1])
    rows = np.array([numbers, offsets], np.int64).T
    return Storages(of_forms(forms, np.array(which, np.int64), rows))


def _form(stem: str, tensor: Tensor, start: int, location: int) -> StorageForm:
    return StorageForm(
        stem,
        tensor.memory.value,
        tensor.dtype,
        tuple(tensor.shape),
        start,
        tensor.shape[0],
        tensor.row_bytes,
        location,
    )


def _declaration(
    tensor: Tensor, index: dict[Tensor, int], locations: LocationTable
) -> TensorDeclaration:
    core = None if tensor.memory is Memory.shared_hbm else tensor.core
    root, offset = tensor.in_root()
    return TensorDeclaration(
        tensor.name,
        tensor.dtype,
        tuple(tensor.shape),
        _ROLES.get(tensor.role, "internal"),
        core,
        tensor.stored,
        locations.index(tensor.location),
        None if root is tensor else index[root],
        offset,
    )
