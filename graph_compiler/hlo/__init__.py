"""The HLO graph: its types, its nodes, and the formats that it is read from and written to."""

from graph_compiler.hlo.graph import Computation, Instruction, Module
from graph_compiler.hlo.record import Record
from graph_compiler.hlo.types import PRIMITIVE_TYPES, PrimitiveType, Shape, primitive_name

__all__ = [
    "PRIMITIVE_TYPES",
    "Computation",
    "Instruction",
    "Module",
    "PrimitiveType",
    "Record",
    "Shape",
    "primitive_name",
]
