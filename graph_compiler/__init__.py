"""Whole graphs: XLA HLO modules read, checked, executed on the host and compiled.

`load` reads a graph from a file or bytes, `verify` checks one, `to_proto` and `print_text` write
one; `execute` computes its outputs fast, with code compiled for this CPU, `evaluate` with NumPy, as
the reference. `compile` makes a program of a NeuronCore, as `GraphOptions` say; `freeze` makes
parameters constants. `graph_compiler.hlo` has the nodes.

1. In: `frontends`, with `inputs`, `sample_inputs` and `freezing` for arrays of parameters. `hlo`
   has graphs and operators, `partitions` how ranks divide a graph.
2. On the host: `evaluate` is the reference, `execute` the compiled code.
3. For the device: `admission` refuses what the vendor's compiler refuses (codes: `documented`, with
   examples in `documented_programs`), `options` says how, `lower` makes tile IR (`kernels` and
   `scaled_calls` are custom calls), `storage` places values in HBM; `compiled` ties these together
   and picks the fastest plan.
4. Of a compiled graph: `timing`, `report`, `hot_spots`, `memory`, `lookups`.
5. Commands and pages: `cli`, `runs`, `description`, `command` (`neuronx-cc`), `pages`.
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
