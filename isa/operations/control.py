"""Registers, barriers, and the storage marker."""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.enums import SEQUENCERS, Engine
from isa.fields import ANY_MEMORY, SBUF_OR_HBM, SHARED_HBM, Attribute, Kind, Read, Update, Write
from isa.machine import control
from isa.spec import Instruction, Operation

_API = "nki/api/nki.isa.rst#nki.isa."


class RegisterMove(Operation):
    """Register dst = src, a number or another register."""

    name = "register_move"
    document = _API + "register_move"
    engines = SEQUENCERS
    dst = Attribute(kind=Kind.register)
    src = Attribute(kind=Kind.value)

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        return (Instruction(control.RegisterMove, Engine.unknown, values),)


class RegisterLoad(Operation):
    """Register dst = the one element of src."""

    name = "register_load"
    document = _API + "register_load"
    engines = SEQUENCERS
    dst = Attribute(kind=Kind.register)
    src = Read(SBUF_OR_HBM)
    rules = (rules.one_element("src"),)

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        return (Instruction(control.RegisterLoad, Engine.unknown, values),)


class RegisterStore(Operation):
    """The one element of dst = register src."""

    name = "register_store"
    document = _API + "register_store"
    engines = SEQUENCERS
    dst = Write(SBUF_OR_HBM)
    src = Attribute(kind=Kind.value)
    rules = (rules.one_element("dst"),)

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        return (Instruction(control.RegisterStore, Engine.sync, values),)


class RegisterAlu(Operation):
    """Register dst = left <op> right. The lowering's own; the public API has no register maths."""

    name = "register_alu"
    engines = SEQUENCERS
    public = False
    dst = Attribute(kind=Kind.register)
    op = Attribute(kind=Kind.register_operation)
    left = Attribute(kind=Kind.value)
    right = Attribute(kind=Kind.value)

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        return (Instruction(control.RegisterAlu, Engine.unknown, values),)


class CoreBarrier(Operation):
    """Every core in `cores` waits for the others; orders all their accesses to shared HBM."""

    name = "core_barrier"
    document = _API + "core_barrier"
    engines = SEQUENCERS
    generations = (3, 4)
    minimum_cores = 2
    data = Update(SHARED_HBM)
    cores = Attribute(kind=Kind.integers)
    engine = Attribute(kind=Kind.engine, choices=SEQUENCERS, default=Engine.gpsimd)
    rules = (rules.BARRIER_CORES,)

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        data, cores, engine = values
        return (Instruction(control.CoreBarrier, engine, (data, cores)),)


class StorageBegin(Operation):
    """An allocation begins: its elements hold nothing yet. Costs no time."""

    name = "storage_begin"
    engines = SEQUENCERS
    public = False
    dst = Write(ANY_MEMORY)

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        return (Instruction(control.StorageBegin, Engine.unknown, values),)
