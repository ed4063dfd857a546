"""The HLO graph: its types, its nodes, and the formats that it is read from and written to.

1. `types`, `literal` and `graph` are shapes, constants and nodes; `operators` is the table of
   opcodes.
2. Protobuf: `proto_fields` has the fields of every message, `proto_messages` makes classes of them,
   `record` and `proto_values` are messages as plain values, `proto` reads and writes modules.
3. Text: `text_parser` reads and `text` writes. Their parts are `text_scan` (tokens), `text_values`,
   `text_attribute`, `text_attributes`, `text_forms`, `text_calls` and `text_sharding`.
4. `order` sorts a graph, `verify` checks it against the table, `effects` and `cost` say what it
   does, `arguments` checks what public functions are given.
"""

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
