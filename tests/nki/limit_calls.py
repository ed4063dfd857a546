"""Calls that tests of documented limits vary: right as they are, wrong with other arguments."""

from limits import F32, empty, tile
from surface import sbuf

import nki.isa as nisa
import nki.language as nl


def activated(**options):
    data = tile(4, 8)
    nisa.activation(dst=sbuf((4, 8), "float32"), op=nl.exp, data=data, **options)


def exponential(command, **options):
    nisa.exponential(
        sbuf((4, 8), "float32"), tile(4, 8), reduce_res=sbuf((4, 1), "float32"),
        reduce_cmd=getattr(nisa.reduce_cmd, command), **options,
    )  # fmt: skip


def ranged(**options):
    chosen = {"comp_op0": nl.greater, "comp_op1": nl.less, **options}
    nisa.range_select(
        dst=sbuf((4, 8), "float32"), on_true_tile=tile(4, 8), bound0=tile(4, 1), bound1=tile(4, 1),
        reduce_res=sbuf((4, 1), "float32"), **chosen,
    )  # fmt: skip


def reduced_row(**options):
    chosen = {"reduce_op": nl.add, "reduce_res": empty(4, 1), **options}
    nisa.tensor_scalar_reduce(empty(4, 8), tile(4, 8), nl.add, 1.0, **chosen)


def cumulative(op0=nl.multiply, op1=nl.add, imm0=1.0, dtype=F32, **options):
    src = tile(4, 8, dtype=dtype)
    nisa.tensor_scalar_cumulative(empty(4, 8, dtype=dtype), src, op0, op1, imm0, **options)


def activate2(op0=nl.multiply, op1=nl.add, imm0=1.0, imm1=1.0, **options):
    nisa.activate2(empty(4, 8), nl.exp, tile(4, 8), imm0, imm1, op0, op1, **options)


def selected(on_true=None, predicate="uint8", on_false=0.0, **options):
    chosen = tile(4, 8, dtype=predicate) if isinstance(predicate, str) else predicate
    data = tile(4, 8) if on_true is None else on_true
    nisa.select_reduce(empty(4, 8), chosen, data, on_false, **options)


def largest(n=64, k=1, p=16, x=4, val="bfloat16", idx="uint32", src="bfloat16", vk=None):
    values, places = empty(p, k, dtype=val), empty(p, vk or k, dtype=idx)
    nisa.topk(values, places, tile(p, x, dtype=src), n)


def nonzero(dst="int32", src="int32", extra=1, **options):
    data = tile(16, 8, dtype=src)
    nisa.nonzero_with_count(empty(16, 8 + extra, dtype=dst), data, **options)
