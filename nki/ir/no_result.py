"""Errors for authors who use an instruction as if it returned the tensor that it writes."""

from __future__ import annotations

from typing import Any, NoReturn

from isa.errors import NeuronError

_OPERATORS = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"),
    *("lshift", "rshift"),
)
_REFLECTED = tuple(f"r{name}" for name in _OPERATORS)
_OTHERS = (
    "neg",
    "invert",
    "abs",
    "lt",
    "le",
    "gt",
    "ge",
    "getitem",
    "setitem",
    "iter",
    "len",
    "bool",
)
_CONVERSIONS = ("float", "int", "index", "array")


def _refuse(instruction: Any, code: str, use: str) -> NoReturn:
    name = instruction.row.name
    raise NeuronError(
        code,
        what=f"{use} what nisa.{name} returns, which is an instruction",
        why="Operations write to the tensor that is their dst; they return a handle for "
        "depends_on.",
        hint="Use the tensor that was passed as dst.",
    )


def _refused(method: str) -> Any:
    def refuse(self: Any, *_: Any, **__: Any) -> NoReturn:
        _refuse(self, "not-a-tensor", f"Python's {method} on")

    return refuse


class NoResult:
    """Base of instructions: each says where its result is."""

    __slots__ = ()

    def __repr__(self) -> str:
        instruction: Any = self
        return f"<what nisa.{instruction.row.name} returns>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)  # what copies and shows objects asks for such names
        _refuse(self, "unknown-name", f"{name} of")


for _name in (*_OPERATORS, *_REFLECTED, *_OTHERS, *_CONVERSIONS):
    setattr(NoResult, f"__{_name}__", _refused(f"__{_name}__"))
