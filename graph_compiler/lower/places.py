"""Source map of a graph: each operation names the instruction of the graph that it comes from.

File and line are those of the model's source where the metadata states them, else the graph's name;
the function is the scope (`op_name`), the text the instruction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from isa.program import SourceLocation

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction


def location_of(item: Instruction, graph: str) -> SourceLocation:
    """Where operations that compute an instruction come from.

    >>> from graph_compiler import parse_text
    >>> text = "HloModule m\\nENTRY e {\\n x = f32[3] parameter(0)\\n ROOT r = f32[3] add(x, x)\\n}"
    >>> location_of(parse_text(text).entry.root, "m").text
    'r = f32[3] add'
    """
    metadata = item.metadata
    file, line, scope = graph, 0, ""
    if metadata is not None:
        scope = metadata.op_name or ""
        if metadata.source_file:
            file, line = metadata.source_file, int(metadata.source_line or 0)
    text = f"{item.name} = {item.shape} {item.opcode}"
    return SourceLocation(file, line, 0, len(text), scope, text)


def graph_location(graph: str) -> SourceLocation:
    """Where operations come from that are for no instruction alone.

    >>> graph_location("m").file
    'm'
    """
    return SourceLocation(graph, 0, 0, 0, "", "")


def name_of(text: str) -> str:
    """The name of the instruction that the text of a location shows; "" for other lines."""
    name, equals, _ = text.partition(" = ")
    return name.strip() if equals else ""
