"""An example of every opcode: a small graph whose outputs its reference page shows.

An example is the body of an entry computation without parameters. Its last line is the root; what
it calls is in `CALLED`. Collectives run on two ranks, whose `x` are [1, 2, ...] and ten times that.
"""

from __future__ import annotations

import re

from graph_compiler.hlo.operators import OPERATORS
from graph_compiler.hlo.operators.collectives import Collective, CollectivePermute, PartitionId
from graph_compiler.hlo.operators.elementwise.binary import Binary
from graph_compiler.hlo.operators.elementwise.unary import Unary
from graph_compiler.hlo.operators.row import HloOperator

_BINARY = "{{ a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = {} }}".format

CALLED = {
    "sum": "sum " + _BINARY("f32[] add(a, b)"),
    "less": "less " + _BINARY("pred[] compare(a, b), direction=LT"),
    "larger": "larger " + _BINARY("pred[] compare(a, b), direction=GE"),
    "product": "product " + _BINARY("f32[] multiply(a, b)"),
    "twice": "twice { p = f32[3] parameter(0)\n  ROOT r = f32[3] add(p, p) }",
    "minus": "minus { p = f32[3] parameter(0)\n  ROOT r = f32[3] negate(p) }",
    "below": "below { p = s32[] parameter(0)\n  n = s32[] constant(100)\n"
    "  ROOT r = pred[] compare(p, n), direction=LT }",
    "triple": "triple { p = s32[] parameter(0)\n  n = s32[] constant(3)\n"
    "  ROOT r = s32[] multiply(p, n) }",
    "step": "step { p = f32[] parameter(0)\n  total = f32[] parameter(1)\n"
    "  r = f32[] add(p, total)\n  ROOT t = (f32[], f32[]) tuple(r, r) }",
}
"""Computations that examples call, by name."""

_X = "x = f32[3] constant({1, 2, 3})\n"
_M = "m = f32[2,3] constant({ { 1, 2, 3 }, { 4, 5, 6 } })\n"
_ZERO = "zero = f32[] constant(0)\n"
_V = "v = f32[5] constant({1, 2, 3, 4, 5})\n"
_RANK = (
    "rank = u32[] replica-id()\nten = u32[] constant(10)\nfactor = u32[] power(ten, rank)\n"
    "one = f32[] convert(factor)\nones = f32[4] broadcast(one), dimensions={}\n"
    "count = f32[4] constant({1, 2, 3, 4})\nx = f32[4] multiply(count, ones)\n"
)
_SQUARE = "a = f32[2,2] constant({ { 4, 2 }, { 2, 5 } })\n"
_NORM = (
    "x = f32[4,1] constant({ {1}, {2}, {3}, {6} })\nscale = f32[1] constant({2})\n"
    "offset = f32[1] constant({1})\n"
)
_MOMENTS = "mean = f32[1] constant({3})\nvariance = f32[1] constant({3.5})\n"

EXAMPLES: dict[str, str] = {
    "parameter": _X + "r = f32[3] call(x), to_apply=twice",
    "constant": "r = f32[3] constant({1, 2, 3})",
    "iota": "r = s32[2,3] iota(), iota_dimension=1",
    "copy": _X + "r = f32[3] copy(x)",
    "broadcast": _X + "r = f32[2,3] broadcast(x), dimensions={1}",
    "reshape": _M + "r = f32[3,2] reshape(m)",
    "dynamic-reshape": _M + "n = s32[] constant(6)\nr = f32[6] dynamic-reshape(m, n)",
    "bitcast": _M + "r = f32[6] bitcast(m)",
    "transpose": _M + "r = f32[3,2] transpose(m), dimensions={1,0}",
    "reverse": _X + "r = f32[3] reverse(x), dimensions={0}",
    "get-dimension-size": _M + "r = s32[] get-dimension-size(m), dimensions={1}",
    "slice": _V + "r = f32[2] slice(v), slice={[1:5:2]}",
    "concatenate": _X + "r = f32[6] concatenate(x, x), dimensions={0}",
    "pad": _X + _ZERO + "r = f32[8] pad(x, zero), padding=1_2_1",
    "dynamic-slice": _V + "i = s32[] constant(9)\n"
    "r = f32[2] dynamic-slice(v, i), dynamic_slice_sizes={2}",
    "dynamic-update-slice": _V + "u = f32[2] constant({8, 9})\ni = s32[] constant(1)\n"
    "r = f32[5] dynamic-update-slice(v, u, i)",
    "gather": _M + "i = s32[2] constant({1, 0})\nr = f32[2,3] gather(m, i), offset_dims={1}, "
    "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,3}",
    "scatter": _V + "i = s32[2,1] constant({ {1}, {1} })\nu = f32[2] constant({10, 20})\n"
    "r = f32[5] scatter(v, i, u), update_window_dims={}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum",
    "reduce": _M + _ZERO + "r = f32[2] reduce(m, zero), dimensions={1}, to_apply=sum",
    "reduce-window": _V + _ZERO + "r = f32[5] reduce-window(v, zero), window={size=3 pad=1_1}, "
    "to_apply=sum",
    "select-and-scatter": "v = f32[4] constant({1, 5, 2, 4})\ns = f32[2] constant({10, 20})\n"
    + _ZERO
    + "r = f32[4] select-and-scatter(v, s, zero), window={size=2 stride=2}, select=larger, "
    "scatter=sum",
    "map": _X + "r = f32[3] map(x, x), dimensions={0}, to_apply=product",
    "scan": _X + _ZERO + "r = (f32[3], f32[]) scan(x, zero), dimensions={0}, num_carries=1, "
    "is_reverse=false, to_apply=step",
    "sort": "v = f32[4] constant({3, 1, 4, 2})\nr = f32[4] sort(v), dimensions={0}, to_apply=less",
    "topk": "v = f32[4] constant({3, 1, 4, 2})\nr = (f32[2], s32[2]) topk(v), k=2, largest=true",
    "dot": _M + "r = f32[2,2] dot(m, m), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "ragged-dot": _M + "w = f32[2,3,1] constant({ { {1}, {0}, {0} }, { {0}, {0}, {1} } })\n"
    "sizes = s32[2] constant({1, 1})\nr = f32[2,1] ragged-dot(m, w, sizes), "
    "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, "
    "rhs_group_dims={0}",
    "convolution": "v = f32[1,1,4] constant({ { { 1, 2, 3, 4 } } })\n"
    "k = f32[1,1,2] constant({ { { 1, 10 } } })\n"
    "r = f32[1,1,4] convolution(v, k), window={size=2 pad=1_0}, dim_labels=bf0_oi0->bf0",
    "triangular-solve": "a = f32[2,2] constant({ { 2, 0 }, { 1, 4 } })\n"
    "b = f32[2,1] constant({ {2}, {9} })\nr = f32[2,1] triangular-solve(a, b), left_side=true, "
    "lower=true, transpose_a=NO_TRANSPOSE",
    "cholesky": _SQUARE + "r = f32[2,2] cholesky(a), lower=true",
    "fft": "x = f32[4] constant({1, 2, 3, 4})\nr = c64[3] fft(x), fft_type=RFFT, fft_length={4}",
    "batch-norm-training": _NORM + "r = (f32[4,1], f32[1], f32[1]) "
    "batch-norm-training(x, scale, offset), epsilon=0.5, feature_index=1",
    "batch-norm-inference": _NORM + _MOMENTS + "r = f32[4,1] "
    "batch-norm-inference(x, scale, offset, mean, variance), epsilon=0.5, feature_index=1",
    "batch-norm-grad": _NORM + _MOMENTS + "r = (f32[4,1], f32[1], f32[1]) "
    "batch-norm-grad(x, scale, mean, variance, x), epsilon=0.5, feature_index=1",
    "rng": _ZERO + "one = f32[] constant(1)\nr = f32[3] rng(zero, one), distribution=rng_uniform",
    "rng-bit-generator": "s = u64[2] constant({1, 0})\n"
    "r = (u64[2], u32[3]) rng-bit-generator(s), algorithm=rng_three_fry",
    "rng-get-and-update-state": "r = u64[2] rng-get-and-update-state(), delta=4",
    "tuple": _X + "r = (f32[3], f32[3]) tuple(x, x)",
    "get-tuple-element": _X + "t = (f32[3], f32[3]) tuple(x, x)\n"
    "r = f32[3] get-tuple-element(t), index=1",
    "call": _X + "r = f32[3] call(x), to_apply=twice",
    "fusion": _X + "r = f32[3] fusion(x), kind=kLoop, calls=twice",
    "while": "one = s32[] constant(1)\nr = s32[] while(one), condition=below, body=triple",
    "conditional": _X + "i = s32[] constant(1)\n"
    "r = f32[3] conditional(i, x, x), branch_computations={twice, minus}",
    "opt-barrier": _X + "r = f32[3] opt-barrier(x)",
    "add-dependency": _X + "t = token[] after-all()\nr = f32[3] add-dependency(x, t)",
    "domain": _X + 'r = f32[3] domain(x), domain={kind="sharding", entry={replicated}, '
    "exit={replicated}}",
    "after-all": _X + "t = token[] after-all()\nr = f32[3] add-dependency(x, t)",
    "copy-start": _X + "s = (f32[3], f32[3], u32[]) copy-start(x)\nr = f32[3] copy-done(s)",
    "async-start": _X + "s = ((f32[3]), f32[3], u32[]) async-start(x), calls=twice\n"
    "r = f32[3] async-done(s)",
    "async-update": _X + "s = ((f32[3]), f32[3], u32[]) async-start(x), calls=twice\n"
    "u = ((f32[3]), f32[3], u32[]) async-update(s)\nr = f32[3] async-done(u)",
    "custom-call": _X + 'r = f32[3] custom-call(x), custom_call_target="AwsNeuronSilu"',
    "compare": _X + "y = f32[3] constant({2, 2, 2})\nr = pred[3] compare(x, y), direction=GE",
    "select": _X + "y = f32[3] constant({-1, -2, -3})\n"
    "p = pred[3] constant({1, 0, 1})\nr = f32[3] select(p, x, y)",
    "clamp": _X + "low = f32[] constant(1.5)\nhigh = f32[] constant(2.5)\n"
    "r = f32[3] clamp(low, x, high)",
    "convert": "x = f32[4] constant({-1.5, 2.5, nan, 1e+20})\nr = s32[4] convert(x)",
    "stochastic-convert": "x = f32[2] constant({1.25, 1.25})\n"
    "u = u32[2] constant({0, 4000000000})\nr = s32[2] stochastic-convert(x, u)",
    "bitcast-convert": _X + "r = u32[3] bitcast-convert(x)",
    "reduce-precision": "x = f32[2] constant({1.2345678, 70000})\n"
    "r = f32[2] reduce-precision(x), exponent_bits=5, mantissa_bits=10",
    "real": "x = c64[2] constant({(1, 2), (3, -4)})\nr = f32[2] real(x)",
    "imag": "x = c64[2] constant({(1, 2), (3, -4)})\nr = f32[2] imag(x)",
    "complex": _X + "r = c64[3] complex(x, x)",
    "is-finite": "x = f32[3] constant({1, inf, nan})\nr = pred[3] is-finite(x)",
    "atan2": "y = f32[2] constant({1, -1})\nx = f32[2] constant({-1, 0})\nr = f32[2] atan2(y, x)",
    "all-reduce": _RANK + "r = f32[4] all-reduce(x), replica_groups={{0,1}}, to_apply=sum",
    "all-reduce-start": _RANK + "s = f32[4] all-reduce-start(x), replica_groups={{0,1}}, "
    "to_apply=sum\nr = f32[4] all-reduce-done(s)",
    "all-gather": _RANK + "r = f32[8] all-gather(x), replica_groups={{0,1}}, dimensions={0}",
    "all-gather-start": _RANK + "s = (f32[4], f32[8]) all-gather-start(x), "
    "replica_groups={{0,1}}, dimensions={0}\nr = f32[8] all-gather-done(s)",
    "reduce-scatter": _RANK + "r = f32[2] reduce-scatter(x), replica_groups={{0,1}}, "
    "dimensions={0}, to_apply=sum",
    "all-to-all": _RANK + "r = f32[4] all-to-all(x), replica_groups={{0,1}}, dimensions={0}",
    "ragged-all-to-all": _RANK + "z = f32[] constant(0)\nout = f32[4] broadcast(z), dimensions={}\n"
    "starts = s32[2] constant({0, 1})\nlengths = s32[2] constant({1, 2})\n"
    "i = s32[] convert(rank)\nto = s32[2] broadcast(i), dimensions={}\n"
    "r = f32[4] ragged-all-to-all(x, out, starts, lengths, to, lengths), "
    "replica_groups={{0,1}}",
    "collective-broadcast": _RANK + "r = f32[4] collective-broadcast(x), replica_groups={{1,0}}",
    "collective-permute": _RANK + "r = f32[4] collective-permute(x), source_target_pairs={{0,1}}",
    "collective-permute-start": _RANK + "s = (f32[4], f32[4]) collective-permute-start(x), "
    "source_target_pairs={{0,1}}\nr = f32[4] collective-permute-done(s)",
    "partition-id": "r = u32[] partition-id()",
    "replica-id": "r = u32[] replica-id()",
}
"""Examples by opcode; element-wise operations without one take `_elementwise`."""

for _done, _start in (
    ("copy-done", "copy-start"),
    ("async-done", "async-start"),
    ("all-reduce-done", "all-reduce-start"),
    ("all-gather-done", "all-gather-start"),
    ("collective-permute-done", "collective-permute-start"),
):
    EXAMPLES[_done] = EXAMPLES[_start]

_OPERANDS = {
    "float": ("f32[4]", "{-1.5, 0, 0.5, 2}", "{2, -1, 3, 0.5}"),
    "signed": ("s32[4]", "{-7, 0, 1, 6}", "{2, 1, 3, 31}"),
}


def _elementwise(row: type[HloOperator]) -> str:
    """An operation on four elements; of floats where it takes them."""
    kinds: frozenset[str] = getattr(row, "kinds", frozenset())
    shape, x, y = _OPERANDS["float" if "float" in kinds else "signed"]
    lines = [f"x = {shape} constant({x})"]
    if issubclass(row, Binary):
        lines.append(f"y = {shape} constant({y})")
    return "\n".join([*lines, f"r = {shape} {row.opcode}({'x, y' if len(lines) > 1 else 'x'})"])


def has_example(row: type[HloOperator]) -> bool:
    """Whether an opcode has an example of its own or takes that of its family."""
    return row.opcode in EXAMPLES or issubclass(row, (Unary, Binary))


def example_lines(opcode: str) -> str:
    """The example of an opcode, the root marked. Raises KeyError for opcodes without a row.

    >>> print(example_lines("reverse"))
    x = f32[3] constant({1, 2, 3})
    ROOT r = f32[3] reverse(x), dimensions={0}
    """
    text = EXAMPLES.get(opcode) or _elementwise(OPERATORS[opcode])
    head, newline, root = text.rpartition("\n")
    return f"{head}{newline}ROOT {root}"


def _called(opcode: str) -> list[str]:
    """The computations that an example calls, in order."""
    names = re.findall(r"[={ ](\w+)", example_lines(opcode))
    return [CALLED[name] for name in dict.fromkeys(names) if name in CALLED]


def example_text(opcode: str) -> str:
    """The example as a page shows it: the computations that it calls, then its lines."""
    return "\n\n".join([*_called(opcode), example_lines(opcode)])


def example_module(opcode: str) -> str:
    """The example as the text of a whole module."""
    parts = ["HloModule example", *_called(opcode), "ENTRY main {", example_lines(opcode), "}"]
    return "\n".join(parts)


def example_ranks(opcode: str) -> int:
    """On how many ranks the example runs."""
    row = OPERATORS[opcode]
    several = (Collective, CollectivePermute, PartitionId)
    return 2 if issubclass(row, several) or "replica-id" in EXAMPLES.get(opcode, "") else 1
