"""A graph that is rewritten once is what each plan would begin with."""

from __future__ import annotations

import graph_compiler
from graph_compiler.lower.assemble import assembled, planned
from graph_compiler.lower.limits import plans
from graph_compiler.lower.rewritten import rewritten_graph
from graph_compiler.options import GraphOptions
from isa.target import TARGETS
from nki.ir.text.printer import print_kernel

ATTENTION = """HloModule m
larger { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT m = f32[] maximum(a, b) }
plus { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
ENTRY e {
 q = f32[2,16,96,64] parameter(0)
 k = f32[2,16,96,64] parameter(1)
 v = f32[2,16,96,64] parameter(2)
 w = f32[64,200] parameter(3)
 s = f32[2,16,96,96] dot(q, k), lhs_batch_dims={0,1}, rhs_batch_dims={0,1},
  lhs_contracting_dims={3}, rhs_contracting_dims={3}
 least = f32[] constant(-inf)
 zero = f32[] constant(0)
 m = f32[2,16,96] reduce(s, least), dimensions={3}, to_apply=larger
 ms = f32[2,16,96,96] broadcast(m), dimensions={0,1,2}
 d = f32[2,16,96,96] subtract(s, ms)
 x = f32[2,16,96,96] exponential(d)
 t = f32[2,16,96] reduce(x, zero), dimensions={3}, to_apply=plus
 ts = f32[2,16,96,96] broadcast(t), dimensions={0,1,2}
 p = f32[2,16,96,96] divide(x, ts)
 o = f32[2,16,96,64] dot(p, v), lhs_batch_dims={0,1}, rhs_batch_dims={0,1},
  lhs_contracting_dims={3}, rhs_contracting_dims={2}
 r = f32[3072,64] reshape(o)
 ROOT y = f32[3072,200] dot(r, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""


def test_plans_that_share_a_rewritten_graph_are_those_that_do_not() -> None:
    target = TARGETS["trn2"]
    module = graph_compiler.parse_text(ATTENTION)
    options = GraphOptions(auto_cast="matmult", logical_cores=2)
    graph = rewritten_graph(module, target, options)
    found = set()
    for limits in plans(2):
        shared = planned(graph, target, options, limits=limits)
        alone = assembled(module, target, options, limits=limits)
        assert print_kernel(shared.kernel) == print_kernel(alone.kernel)
        found.add(print_kernel(alone.kernel))
    assert len(found) > 1
