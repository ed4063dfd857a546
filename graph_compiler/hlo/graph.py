"""The graph: a module of computations, each a list of instructions with operands before users.

It holds what an HloModuleProto holds. Everything that a proto states beyond the graph's own slots
is in `attributes`, by the name of the proto's field and only where the proto states it:

- numbers, strings, bytes and bools as themselves; repeated fields as tuples;
- enumerations by the name of the value ("RNG_UNIFORM");
- shapes as `Shape`; other messages as `Record` (`attributes["window"].dimensions[0].stride`);
- `literal` as a NumPy array (tuple of arrays for a tuple), in row-major order whatever the layout;
- fields that the field table does not know as bytes, in `unknown`.

Semantics of the fields: https://openxla.org/xla/operation_semantics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graph_compiler.hlo.record import Record, default_of
from graph_compiler.hlo.types import Shape

CONVENTIONS = frozenset(
    {"is_dynamic_dimension", "tail_padding", "layout"}
    | {"metadata", "frontend_attributes", "statistics_viz", "host_program_shape"}
)
"""What XLA's writer states in every place although it says nothing: that dimensions are static,
that layouts end without padding, the layout of scalars, empty metadata, attributes and statistics.
It also states the shapes of the entry computation once more for the host, without which XLA reads
no module. A module remembers which of these its file states throughout (`Module.conventions`); the
graph then leaves them out, and writing a proto puts them back. A module made anew follows all of
them."""


class Instruction:
    """One instruction of a computation; also the value that it computes.

    `opcode`: as HLO text writes it ("add", "dynamic-slice"). `called`: the computations that it
    calls, in the order of the proto: of `while` body then condition, of `conditional` the
    branches, of `select-and-scatter` select then scatter, else the one computation.
    `parameter_number` counts for `parameter` only. `id` is unique in the module; 0 until
    numbered (`Module.renumber`).

    >>> x = Instruction("parameter", Shape("f32", (2,)), name="x")
    >>> Instruction("add", Shape("f32", (2,)), [x, x], name="y")
    <y = f32[2] add(x, x)>
    """

    __slots__ = (
        "attributes",
        "called",
        "control_predecessors",
        "id",
        "metadata",
        "name",
        "opcode",
        "operands",
        "parameter_number",
        "shape",
        "unknown",
    )

    def __init__(
        self,
        opcode: str,
        shape: Shape,
        operands: list[Instruction] | tuple[Instruction, ...] = (),
        name: str = "",
        attributes: dict[str, Any] | None = None,
        called: list[Computation] | tuple[Computation, ...] = (),
        metadata: Record | None = None,
        control_predecessors: list[Instruction] | tuple[Instruction, ...] = (),
        parameter_number: int = 0,
        id: int = 0,
        unknown: bytes = b"",
    ) -> None:
        self.name = name
        self.opcode = opcode
        self.shape = shape
        self.operands = list(operands)
        self.attributes = attributes if attributes is not None else {}
        self.called = list(called)
        self.metadata = metadata
        self.control_predecessors = list(control_predecessors)
        self.id = id
        self.parameter_number = parameter_number
        self.unknown = unknown

    def attribute(self, name: str) -> Any:
        """The attribute, or what a proto means that does not state it (0, "", (), None ...)."""
        value = self.attributes.get(name)
        return default_of("HloInstructionProto", name) if value is None else value

    @property
    def frontend_attributes(self) -> dict[str, str]:
        record = self.attributes.get("frontend_attributes")
        return {} if record is None else record.map

    @property
    def source(self) -> str:
        """`file:line` of the model's source, "" where the graph does not say."""
        if self.metadata is None or not self.metadata.source_file:
            return ""
        line = self.metadata.source_line
        return self.metadata.source_file + (f":{line}" if line else "")

    def __repr__(self) -> str:
        operands = ", ".join(operand.name for operand in self.operands)
        return f"<{self.name} = {self.shape} {self.opcode}({operands})>"


class Computation:
    """A function of a module: instructions in an order in which operands precede users.

    `attributes`: the proto's other fields (`program_shape`, `is_fusion_computation`,
    `execution_thread`). A `program_shape` that is absent follows from parameters and root.

    >>> x = Instruction("parameter", Shape("f32", (2,)), name="x")
    >>> main = Computation("main", [x, Instruction("negate", Shape("f32", (2,)), [x])])
    >>> main.root.opcode, [item.name for item in main.parameters]
    ('negate', ['x'])
    """

    __slots__ = ("attributes", "id", "instructions", "name", "root", "unknown")

    def __init__(
        self,
        name: str,
        instructions: list[Instruction] | tuple[Instruction, ...] = (),
        root: Instruction | None = None,
        id: int = 0,
        attributes: dict[str, Any] | None = None,
        unknown: bytes = b"",
    ) -> None:
        self.name = name
        self.instructions = list(instructions)
        self.root: Instruction = root if root is not None else self.instructions[-1]
        self.id = id
        self.attributes = attributes if attributes is not None else {}
        self.unknown = unknown

    @property
    def parameters(self) -> list[Instruction]:
        """The parameter instructions by their number."""
        found = [item for item in self.instructions if item.opcode == "parameter"]
        return sorted(found, key=lambda item: item.parameter_number)

    def program_shape(self) -> Record:
        """Shapes and names of the parameters, and the shape of the result."""
        parameters = self.parameters
        record = Record("ProgramShapeProto")
        if parameters:
            record.values["parameters"] = tuple(item.shape for item in parameters)
        record.values["result"] = self.root.shape
        if parameters:
            record.values["parameter_names"] = tuple(item.name for item in parameters)
        return record

    def __repr__(self) -> str:
        return f"<computation {self.name}: {len(self.instructions)} instructions>"


class Module:
    """A whole graph. `computations`: callees before callers, the entry among them.

    `attributes`: the proto's other fields (`host_program_shape`, `input_output_alias`, `schedule`,
    `frontend_attributes` ...). A `host_program_shape` that is absent follows from the entry
    computation. `config`: settings that only the text form has (`num_partitions`).
    `wrappers`: for each message that surrounds the module in its file (HloProto, HloSnapshot),
    outermost first, that message's other fields as bytes. `conventions`: see `CONVENTIONS`.
    `kernels`: NKI kernels that custom calls of the graph name, as far as they came with it.

    >>> x = Instruction("parameter", Shape("f32", (2,)), name="x")
    >>> module = Module("same", [Computation("main", [x])])
    >>> module, str(module.result_shape)
    (<module same: 1 computations>, 'f32[2]')
    """

    __slots__ = (
        "attributes",
        "computations",
        "config",
        "conventions",
        "entry",
        "id",
        "kernels",
        "name",
        "unknown",
        "wrappers",
    )

    def __init__(
        self,
        name: str,
        computations: list[Computation] | tuple[Computation, ...],
        entry: Computation | None = None,
        id: int = 0,
        attributes: dict[str, Any] | None = None,
        unknown: bytes = b"",
        wrappers: tuple[bytes, ...] = (),
        conventions: frozenset[str] = CONVENTIONS,
        config: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.kernels: dict[str, Any] = {}
        self.computations = list(computations)
        self.entry: Computation = entry if entry is not None else self.computations[-1]
        self.id = id
        self.attributes = attributes if attributes is not None else {}
        self.unknown = unknown
        self.wrappers = wrappers
        self.conventions = conventions
        self.config = config if config is not None else {}

    def instructions(self) -> Iterator[Instruction]:
        """Every instruction of every computation."""
        for computation in self.computations:
            yield from computation.instructions

    @property
    def parameters(self) -> list[Instruction]:
        """Parameters of the entry computation by their number."""
        return self.entry.parameters

    @property
    def result_shape(self) -> Shape:
        return self.entry.root.shape

    def source_of(self, instruction: Instruction) -> str:
        """`file:line` of the model's source, "" where the graph does not say.

        Newer graphs keep the lines in a table of the module (`stack_frame_index`), older ones in
        the metadata of the instruction.
        """
        index = self.attributes.get("stack_frame_index")
        metadata = instruction.metadata
        if index is None or metadata is None or not metadata.stack_frame_id:
            return instruction.source
        frames, places, files = index.stack_frames, index.file_locations, index.file_names
        frame = _numbered(frames, metadata.stack_frame_id)
        place = _numbered(places, frame.file_location_id) if frame is not None else None
        file = _numbered(files, place.file_name_id) if place is not None else None
        if file is None or place is None:
            return instruction.source
        return f"{file}:{place.line}"

    def renumber(self) -> None:
        """Number computations and instructions anew, and give unnamed ones a name, in place."""
        names: set[str] = {item.name for item in self.instructions() if item.name}
        number = 0
        for position, computation in enumerate(self.computations, 1):
            computation.id = position
            for instruction in computation.instructions:
                number += 1
                instruction.id = number
                if not instruction.name:
                    name = f"{instruction.opcode}.{number}"
                    while name in names:
                        name += ".1"
                    names.add(name)
                    instruction.name = name

    def make_names_unique(self) -> None:
        """Rename instructions whose name another computation has too, in place.

        XLA reads no proto without this; in text the same name may stand in several computations.
        """
        taken = {item.name for item in self.instructions()}
        seen: set[str] = set()
        for item in self.instructions():
            if item.name in seen:
                number = 1
                while f"{item.name}.{number}" in taken:
                    number += 1
                item.name = f"{item.name}.{number}"
                taken.add(item.name)
            seen.add(item.name)

    def __repr__(self) -> str:
        return f"<module {self.name}: {len(self.computations)} computations>"


def _numbered(rows: tuple[Any, ...], number: int) -> Any | None:
    """A row of a table that is numbered from 1."""
    return rows[number - 1] if 1 <= number <= len(rows) else None
