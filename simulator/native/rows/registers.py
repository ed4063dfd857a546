"""Registers from and to memory, as `simulator.oracle.control`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from isa.dtypes import DTYPES, DTypeKind
from isa.enums import Engine
from isa.machine import control
from isa.program import RegisterReference
from simulator.device_state import CoreState
from simulator.native.codegen import ports
from simulator.native.codegen.library import Function
from simulator.native.codegen.text import WORD, FunctionText
from simulator.native.plans.plan import Bound, FunctionPlan, Guarded, Job, address, words_type
from simulator.native.plans.table import compiled, plans
from simulator.views import Array, dtype_name

_LIMIT = 2.0**31
"""Floats below it, of either sign, are values of registers if they are whole."""


@dataclass(frozen=True, slots=True)
class LoadRegister:
    """A register = the element of a dtype in memory. Words: the register, the element."""

    dtype: str

    def text(self, name: str) -> str:
        f = FunctionText(name)
        row = DTYPES[self.dtype]
        stored = f.load(f.word(1, "ptr"), f"i{row.bits}")
        if row.is_integer:
            wide = f.convert("sext" if row.kind is DTypeKind.signed else "zext", stored, "i32")
        else:
            wide = f.convert("fptosi", ports.decode(f, self.dtype, stored), "i32")
        f.store(f.convert("sext", wide, "i64"), f.word(0, "ptr"))
        return f.text()


@dataclass(frozen=True, slots=True)
class IsWhole:
    """Whether a float in memory is a value of a register. Words: 0 if it is, else 1, which this
    writes; the element."""

    dtype: str

    def text(self, name: str) -> str:
        f = FunctionText(name)
        stored = f.load(f.word(1, "ptr"), f"i{DTYPES[self.dtype].bits}")
        value = ports.decode(f, self.dtype, stored)
        whole = f.compare("fcmp oeq", f.intrinsic("rint", value), value)
        magnitude = f.intrinsic("fabs", value)
        fits = f.compare("fcmp olt", magnitude, f.like(value, _LIMIT))
        other = (whole & fits) ^ 1
        f.store(f.convert("zext", other, "i64"), f.words)
        return f.text()


@dataclass(frozen=True, slots=True)
class StoreRegister:
    """The element of a dtype in memory = a register. Words: the element, the register."""

    dtype: str

    def text(self, name: str) -> str:
        f = FunctionText(name)
        row = DTYPES[self.dtype]
        value = f.load(f.word(1, "ptr"), "i64")
        if row.is_integer:
            stored = f.convert("trunc", value, f"i{row.bits}")
        else:
            stored = ports.encode(f, self.dtype, f.convert("sitofp", value, "float"))
        f.store(stored, f.word(0, "ptr"))
        return f.text()


def _transfer(
    function: Function, positions: tuple[int, int], guard: Function | None = None
) -> FunctionPlan:
    """How to load or store an element of one dtype. `positions` are those of the register and of
    the operand."""

    def bind(state: CoreState, values: Sequence[Any]) -> Bound | None:
        """The transfer for this register, or from a number, and this element."""
        register, view = (values[position] for position in positions)
        at = positions[1]
        if isinstance(register, RegisterReference):
            keep: Any = state.registers[state.engine]
            place = ctypes.addressof(keep) + WORD * register.number
        else:
            keep = words_type(1)(register)
            place = ctypes.addressof(keep)
        places = {positions[0]: place, at: address(view)}
        words = words_type(2)(places[0], places[1])
        job = Job(function, words, ((at, at),))
        if guard is None:
            return Bound([job], keep)
        looking = Job(guard, words_type(2)(0, places[at]), ((1, at),))
        return Guarded([job], looking, _unreachable, None, keep)

    return FunctionPlan(bind)


def _unreachable() -> None:
    raise AssertionError("programs alone load registers natively")


@plans(control.RegisterLoad)
def register_load(engine: Engine, dst: RegisterReference, src: Array) -> FunctionPlan | None:
    name = dtype_name(src)
    if DTYPES[name].kind is DTypeKind.boolean or not ports.converts(name):
        return None
    function = compiled(LoadRegister(name))
    guard = None if DTYPES[name].is_integer else compiled(IsWhole(name))
    return _transfer(function, (0, 1), guard)


@plans(control.RegisterStore)
def register_store(engine: Engine, dst: Array, src: Any) -> FunctionPlan | None:
    name = dtype_name(dst)
    return _transfer(compiled(StoreRegister(name)), (1, 0)) if ports.converts(name) else None
