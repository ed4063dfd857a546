"""The types of arguments in calls of `nki.isa`, by which editors and type checkers judge calls.

They are those of today's spellings; what runs with a hint besides is in `nki.superseded`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, SupportsFloat, SupportsIndex

from isa.affine import Affine, Polynomial
from isa.alu import AluOperator, ScalarEngineFunction
from isa.fields import REQUIRED, Attribute, Field, Kind
from nki.ir.builder.registers import VirtualRegister
from nki.ir.views.tensor import NkiTensor

Number = SupportsFloat
"""A number of Python or NumPy."""

Integer = SupportsIndex | Polynomial | Affine | VirtualRegister
"""An integer: of Python or NumPy, of launch symbols, of a loop variable, in a register."""

Pattern = Sequence[Sequence[Integer]]
"""[step, count] pairs."""


class Alu(Protocol):
    """A function of `nki.language` that is an ALU operator too."""

    @property
    def alu(self) -> AluOperator: ...


class Reduction(Protocol):
    """`nl.max` and `nl.min`, which stand for the operators with which they reduce."""

    def __call__(
        self, x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False
    ) -> NkiTensor: ...


class ActivationFunction(Protocol):
    """A function of `nki.language` that the scalar engine's tables have."""

    @property
    def activation(self) -> ScalarEngineFunction: ...


AluOp = Alu | AluOperator | Reduction
"""What the ALU of an engine computes: `nl.add`, `nl.maximum`, ..."""

ActivationOp = ActivationFunction | ScalarEngineFunction
"""What `nisa.activation` computes: `nl.exp`, `nl.gelu`, ..."""

_OF_KIND = {
    Kind.flag: "bool",
    Kind.integer: "Integer",
    Kind.float32: "Number",
    Kind.number: "Number",
    Kind.alu: "AluOp",
    Kind.activation: "ActivationOp",
    Kind.pattern: "Pattern",
    Kind.integers: "Integer | Sequence[Integer]",
    Kind.numbers: "Sequence[Number]",
    Kind.register: "VirtualRegister",
    Kind.value: "Integer",
    Kind.accumulate: "bool | None",
    Kind.priority: "int | None",
    Kind.engine: "engine",
    Kind.reduce_command: "reduce_cmd",
    Kind.dge_mode: "dge_mode",
    Kind.dma_engine: "dma_engine",
    Kind.oob_mode: "oob_mode",
    Kind.perf_mode: "matmul_perf_mode",
}


def annotation(field: Field, listed: bool = False) -> str:
    """The type of an argument for a field, or for a list of such fields, as source text.

    >>> from isa.operations import OPERATIONS
    >>> annotation(OPERATIONS["tensor_scalar"].fields["operand0"])
    'NkiTensor | Number | None'
    """
    if isinstance(field, Attribute):
        text = _OF_KIND[field.kind]
    else:
        text = "Sequence[NkiTensor]" if listed else "NkiTensor"
        text += " | Number" if field.immediate else ""
    may_be_none = (field.optional and not listed) or field.default is None
    return f"{text} | None" if may_be_none and "None" not in text else text


def required(field: Field) -> bool:
    """Whether a call must give the argument."""
    return field.default is REQUIRED


TYPES = ("ActivationOp", "AluOp", "Integer", "Number", "Pattern")
"""What annotations name besides public classes."""
