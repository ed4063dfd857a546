"""The error catalogue's rows of graphs, 7xx."""

from __future__ import annotations

from isa.errors.entry import CatalogueEntry

_HLO_SEMANTICS = "https://openxla.org/xla/operation_semantics"
_HLO_TEXT = "https://openxla.org/xla/hlo_dumps"
_entry = CatalogueEntry

GRAPH_ERRORS: dict[str, CatalogueEntry] = {
    "hlo-syntax": _entry(
        701,
        "HLO text cannot be read",
        "HLO text has the form that XLA prints.",
        "Compare the line with the output of `nki hlo convert`.",
        _HLO_TEXT,
    ),
    "hlo-truncated": _entry(
        702,
        "HLO file is incomplete",
        "Every field of a proto states its length, and every computation of a text is closed.",
        "Write or copy the file again: bytes are missing at its end.",
    ),
    "hlo-invalid": _entry(
        703,
        "Graph breaks an invariant of HLO",
        "Instructions use values of their own computation, names and ids are unique, attributes "
        "are complete, and parameters are numbered without gaps.",
        "Write the graph again with the framework that made it, or mend the instruction named.",
        _HLO_SEMANTICS,
    ),
    "hlo-unknown-opcode": _entry(
        704,
        "Unknown HLO opcode",
        "Every opcode has a row in the operator table.",
        "Express the operation with opcodes of the table, or let the framework decompose it.",
        _HLO_SEMANTICS,
    ),
    "hlo-shape-mismatch": _entry(
        705,
        "Shape that an HLO operation cannot have",
        "The shape of a result follows from the operands and attributes, and operands fit "
        "together as the operation says.",
        "Mend the shapes at the instruction named.",
        _HLO_SEMANTICS,
    ),
    "hlo-type-mismatch": _entry(
        706,
        "Element type that an HLO operation cannot have",
        "Operands of one operation share an element type unless the operation says otherwise, "
        "and each operation lists the types that it takes.",
        "Insert a convert before the instruction named.",
        _HLO_SEMANTICS,
    ),
    "hlo-cycle": _entry(
        707,
        "Graph with a cycle",
        "An instruction cannot depend on its own result, nor a computation call itself.",
        "Write the graph again with the framework that made it; loops are `while` instructions.",
        _HLO_SEMANTICS,
    ),
    "hlo-too-large": _entry(
        708,
        "Graph or value beyond the limits",
        "A value has less than 2^40 bytes, a file less than 2^31, and nesting ends at depth 64.",
        "Check the dimensions at the instruction named.",
    ),
    "format-unknown": _entry(
        709,
        "File of an unknown format",
        "A graph is a HloModuleProto or HloProto, HLO text, or StableHLO (text or bytecode).",
        "Pass one of these; the format is recognised by content, whatever the file is called.",
    ),
    "hlo-not-supported": _entry(
        710,
        "Graph with a feature that this project does not have",
        "Graphs have static shapes, opcodes of the operator table, and custom calls whose targets "
        "have a meaning; graphs for several ranks are divided already.",
        "Use the alternative that the message names.",
        _HLO_SEMANTICS,
    ),
    "hlo-not-compiled": _entry(
        712,
        "Operation without a form on the device",
        "Every operation of a graph that is compiled becomes instructions of a NeuronCore; nothing "
        "runs on the host instead.",
        "Run the graph on the host with graph_compiler.execute, or express the operation with "
        "others.",
    ),
    "hlo-unknown-kernel": _entry(
        715,
        "Call of an NKI kernel that was not given",
        "A custom call names an NKI kernel; the kernel itself is not in the graph, and is compiled "
        "with it.",
        "Pass the kernel: graph_compiler.compile(module, target, kernels={name: kernel}).",
    ),
    "documented-refusal": _entry(
        713,
        "Graph or option that the vendor's compiler documents that it refuses",
        "A graph for the device keeps to what its documented error codes, NCC_..., state.",
        "The page of the code, compiler/error-codes of the SDK's documentation, says more.",
        "compiler/error-codes/index.rst",
    ),
    "hlo-option": _entry(
        714,
        "Option of neuronx-cc that is not there yet",
        "An option that would change the program or its results does what is documented, or is "
        "refused.",
        "Compile without it.",
        "compiler/neuronx-cc/api-reference-guide/index.rst",
    ),
    "hlo-too-many-instructions": _entry(
        716,
        "Graph of more instructions than are compiled",
        "A computation is compiled at every place that calls it, which has to end.",
        "Call it from a `while`, or divide the graph.",
        "compiler/error-codes/EVRF007.rst",
    ),
    "no-public-spelling": _entry(
        717,
        "Tile IR that no source of a kernel says",
        "What is printed as NKI source is made of operations of nki.isa, views and loops.",
        "Print the tile IR: nki.ir.text.print_kernel, or --pipeline SaveTemps.",
    ),
    "argument-kind": _entry(
        711,
        "Argument of another kind",
        "Functions of graphs take modules, texts, bytes and paths as their descriptions say.",
        "Pass an argument of the kind that the message names.",
    ),
}
