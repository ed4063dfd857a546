"""Whole graphs: XLA HLO modules read, checked, executed on the host and compiled.

`load` reads a graph from a file or bytes, `verify` checks one, `to_proto` and `print_text` write
one; `execute` computes its outputs fast, with code compiled for this CPU, `evaluate` with NumPy, as
the reference. `compile` makes a program of a NeuronCore, as `GraphOptions` say; `freeze` makes
parameters constants. `graph_compiler.hlo` has the nodes.
"""

import nki  # noqa: F401  says so where another package shadows one of ours
from graph_compiler.compiled import Compiled, compile
from graph_compiler.evaluate import evaluate, evaluate_ranks
from graph_compiler.execute import execute
from graph_compiler.freezing import freeze
from graph_compiler.frontends.sniff import load
from graph_compiler.hlo.graph import Computation, Instruction, Module
from graph_compiler.hlo.proto import from_proto, to_proto
from graph_compiler.hlo.text import parse_text, print_text
from graph_compiler.hlo.types import Shape
from graph_compiler.hlo.verify import verify
from graph_compiler.options import GraphOptions

__all__ = [
    "Compiled",
    "Computation",
    "GraphOptions",
    "Instruction",
    "Module",
    "Shape",
    "compile",
    "evaluate",
    "evaluate_ranks",
    "execute",
    "freeze",
    "from_proto",
    "load",
    "parse_text",
    "print_text",
    "to_proto",
    "verify",
]
