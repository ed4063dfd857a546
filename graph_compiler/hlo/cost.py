"""Numbers of operations that a graph computes.

Arithmetic follows the operators' rows (`Operator.work`); the body of a `while` counts once, because
a graph does not say how often it runs.
"""

from __future__ import annotations

from graph_compiler.hlo.graph import Module
from graph_compiler.hlo.operators import operator
from graph_compiler.hlo.operators.row import NO_WORK, Work
from graph_compiler.hlo.order import callees_first


def work_of(module: Module) -> Work:
    """The arithmetic of one execution of the entry computation.

    Raises NeuronError hlo-cycle, hlo-unknown-opcode.

    >>> from graph_compiler import parse_text
    >>> text = "HloModule m\\nENTRY e {\\n x = f32[8] parameter(0)\\n ROOT y = f32[8] add(x, x)\\n}"
    >>> work_of(parse_text(text))
    Work(flops=8, transcendentals=0)
    """
    found: dict[int, Work] = {}
    for computation in callees_first(module):
        total = NO_WORK
        for item in computation.instructions:
            total += operator(item.opcode).work(item, lambda called: found[id(called)])
        found[id(computation)] = total
    return found[id(module.entry)]
