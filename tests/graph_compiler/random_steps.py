"""The steps of random graphs: each adds an operation, with what it needs, to a scope."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from operator_values import braces, by_x
from random_graphs import (
    BINARY,
    DECIDING,
    DIVISIONS,
    FLOATS,
    INTEGERS,
    MOST,
    OF_INTEGERS,
    SAFE,
    UNARY,
    Draw,
    RandomGraph,
    Scope,
    Value,
    Writer,
)
from random_movement import joined, moved, padded, sliced, value_count

from graph_compiler.hlo import PRIMITIVE_TYPES


def unary(scope: Scope) -> None:
    value = scope.any()
    if value.kind == "boolean":
        scope.same(value, "not", value)
    elif value.kind != "real":
        scope.same(value, scope.pick(("negate", "abs", "sign", "not", "popcnt")), value)
    elif value.exact and scope.draw(0, 2) == 0:
        scope.same(value, scope.pick(DECIDING), value)
    elif scope.draw(0, 3):
        scope.same(value, scope.pick(UNARY), value)
    else:
        op, inner = scope.pick(SAFE)
        name, _, added = inner.partition("+")
        safe = scope.same(value, name, value)
        if added:
            safe = scope.same(value, "add", safe, scope.number(value.type, added, value.dims))
        scope.same(value, op, safe)


def binary(scope: Scope) -> None:
    value = scope.any()
    other = scope.partner(value)
    if value.kind == "boolean":
        scope.same(value, scope.pick(("and", "or", "xor")), value, other)
    elif value.kind == "real":
        op = scope.pick((*BINARY, *BINARY, "divide"))
        if op == "divide":
            other = scope.same(value, "abs", other)
            other = scope.same(value, "add", other, scope.number(value.type, 1, value.dims))
        scope.same(value, op, value, other)
    else:
        op = scope.pick((*BINARY, *BINARY, *OF_INTEGERS, *DIVISIONS))
        scope.same(value, op, *((value, other) if scope.draw(0, 1) else (other, value)))


def selected(scope: Scope) -> None:
    value = scope.any()
    other = scope.partner(value)
    if scope.draw(0, 3) == 0 and value.kind not in ("boolean",):
        low, high = scope.number(value.type, 0), scope.number(value.type, 2)
        scope.add(value.type, value.dims, "clamp", [low, value, high], exact=value.exact)
        return
    exact = value.exact and other.exact
    flags = scope.flags(() if scope.draw(0, 4) == 0 else value.dims)
    scope.add(value.type, value.dims, "select", [flags, value, other], exact=exact)


def compared(scope: Scope) -> None:
    value = scope.some(lambda v: v.exact)
    if value is not None:
        scope.compared(value, scope.exact_partner(value))


def converted(scope: Scope) -> None:
    value = scope.any()
    integers = (*INTEGERS, "pred") if value.exact else ()
    scope.converted(value, scope.pick((*FLOATS, *integers)))


def reduced(scope: Scope) -> None:
    value = scope.some(lambda v: len(v.dims) > 0)
    if value is None:
        return
    axes = [axis for axis in range(len(value.dims)) if scope.draw(0, 1)] or [0]
    dims = [size for axis, size in enumerate(value.dims) if axis not in axes]
    op, start = folds(scope, value)
    to_apply = scope.writer.reducer(op, value.type)
    more = f"dimensions={braces(axes)}, to_apply={to_apply}"
    exact = value.exact and (value.kind != "real" or op in ("maximum", "minimum"))
    scope.add(value.type, dims, "reduce", [value, start], more, exact)


def folds(scope: Scope, value: Value) -> tuple[str, Value]:
    """An operation and where it begins."""
    if value.kind == "boolean":
        op = scope.pick(("and", "or"))
        return op, scope.number("pred", "true" if op == "and" else "false")
    op = scope.pick(("add", "add", "maximum", "minimum"))
    if op == "add":
        return op, scope.number(value.type, scope.draw(0, 1))
    return op, scope.number(value.type, scope.draw(0, 9))


def windowed(scope: Scope) -> None:
    value = scope.some(lambda v: 0 < len(v.dims) < 4 and v.type != "pred")
    if value is None:
        return
    windows = []
    for size in value.dims:
        window = scope.draw(1, min(4, size))
        low, high = scope.draw(0, window - 1), scope.draw(0, window - 1)
        form = (window, scope.draw(1, 2), low, high)
        if scope.draw(0, 5) == 0:
            form = (size, 1, size - 1, 0)  # a sum of all that came before
        windows.append(form if scope.draw(0, 2) else (1, 1, 0, 0))
    dims = [(s + low + high - w) // t + 1 for s, (w, t, low, high) in zip(value.dims, windows)]
    if math.prod(dims) * math.prod(w for w, *_ in windows) > 20 * MOST:
        return
    op, start = folds(scope, value)
    more = (
        f"window={{size={by_x(w for w, *_ in windows)} stride={by_x(t for _, t, *_ in windows)}"
        f" pad={by_x(f'{low}_{high}' for _, _, low, high in windows)}}}"
        f", to_apply={scope.writer.reducer(op, value.type)}"
    )
    exact = value.exact and (value.kind != "real" or op in ("maximum", "minimum"))
    scope.add(value.type, dims, "reduce-window", [value, start], more, exact)


def multiplied(scope: Scope) -> None:
    left = scope.some(lambda v: len(v.dims) > 0 and v.kind != "boolean")
    if left is None:
        return
    axis = scope.draw(0, len(left.dims) - 1)
    right = scope.some(lambda v: v.type == left.type and left.dims[axis] in v.dims) or left
    other = right.dims.index(left.dims[axis])
    batch: list[tuple[int, int]] = []
    for i, size in enumerate(left.dims):
        found = [k for k, s in enumerate(right.dims) if s == size and k != other]
        if i != axis and found and not batch and scope.draw(0, 1):
            batch = [(i, found[0])]
    first, second = ([pair[side] for pair in batch] for side in (0, 1))
    free = [s for i, s in enumerate(left.dims) if i not in (axis, *first)]
    free += [s for i, s in enumerate(right.dims) if i not in (other, *second)]
    dims = [*(left.dims[i] for i in first), *free]
    if math.prod(dims) * left.dims[axis] > 40 * MOST or math.prod(dims) > MOST or len(dims) > 5:
        return
    more = (
        f"lhs_batch_dims={braces(first)}, lhs_contracting_dims={{{axis}}}, "
        f"rhs_batch_dims={braces(second)}, rhs_contracting_dims={{{other}}}"
    )
    type = "f32" if left.kind == "real" and scope.draw(0, 1) else left.type
    scope.add(type, dims, "dot", [left, right], more, left.kind != "real")


def convolved(scope: Scope) -> None:
    value = scope.some(lambda v: 3 <= len(v.dims) <= 4 and v.kind == "real")
    if value is None or scope.depth:
        return
    rank = len(value.dims) - 2
    outputs = scope.draw(1, 5)
    kernel = [scope.draw(1, min(3, size)) for size in value.dims[2:]]
    stride = [scope.draw(1, 2) for _ in kernel]
    weights = parameter(scope, value.type, (outputs, value.dims[1], *kernel))
    low = [scope.draw(0, 1) for _ in kernel]
    dims = [(s + a - k) // t + 1 for s, a, k, t in zip(value.dims[2:], low, kernel, stride)]
    if math.prod(kernel) * value_count(value) * outputs > 40 * MOST:
        return
    letters = "".join(map(str, range(rank)))
    more = (
        f"window={{size={by_x(kernel)} stride={by_x(stride)} pad={by_x(f'{a}_0' for a in low)}}}, "
        f"dim_labels=bf{letters}_oi{letters}->bf{letters}"
    )
    dims = [value.dims[0], outputs, *dims]
    scope.add(value.type, dims, "convolution", [value, weights], more, False)


def at_a_place(scope: Scope) -> None:
    value = scope.some(lambda v: len(v.dims) > 0)
    if value is None:
        return
    starts = [scope.scalar() for _ in value.dims]
    block = [scope.draw(1, size) if scope.draw(0, 1) else size for size in value.dims]
    text = f"dynamic_slice_sizes={braces(block)}"
    part = scope.add(value.type, block, "dynamic-slice", [value, *starts], text, value.exact)
    if scope.draw(0, 1):
        starts = [scope.scalar() for _ in value.dims]
        operands = [scope.partner(value), part, *starts]
        exact = operands[0].exact and part.exact
        scope.add(value.type, value.dims, "dynamic-update-slice", operands, exact=exact)


def indexed(scope: Scope) -> None:
    value = scope.some(lambda v: len(v.dims) > 0)
    if value is None:
        return
    axis = scope.draw(0, len(value.dims) - 1)
    index = scope.some(lambda v: v.type in ("s32", "u8", "s16") and 0 < len(v.dims) < 3)
    if index is None:
        index = scope.iota("s32", (scope.pick(scope.writer.pool),))
    rest = [size for i, size in enumerate(value.dims) if i != axis]
    dims = [*index.dims, *rest]
    if math.prod(dims) > MOST:
        return
    batch = len(index.dims)
    offsets = braces(range(batch, batch + len(rest)))
    if scope.draw(0, 1) and value.kind != "boolean":
        # Of operands that are not exact the order of additions is open, which bounds allow for.
        updates = scope.some(lambda v: v.type == value.type and list(v.dims) == dims)
        updates = updates or scope.number(value.type, scope.whole(value.type), dims)
        op = scope.pick(("add", "maximum"))
        more = (
            f"update_window_dims={offsets}, inserted_window_dims={{{axis}}}, "
            f"scatter_dims_to_operand_dims={{{axis}}}, index_vector_dim={batch}, "
            f"to_apply={scope.writer.reducer(op, value.type)}"
        )
        exact = value.exact and updates.exact and (value.kind != "real" or op == "maximum")
        operands = [value, index, updates]
        scope.add(value.type, value.dims, "scatter", operands, more, exact)
        return
    block = [1 if i == axis else size for i, size in enumerate(value.dims)]
    more = (
        f"offset_dims={offsets}, collapsed_slice_dims={{{axis}}}, start_index_map={{{axis}}}, "
        f"index_vector_dim={batch}, slice_sizes={braces(block)}"
    )
    scope.add(value.type, dims, "gather", [value, index], more, value.exact)


def sorted_(scope: Scope) -> None:
    keys = scope.some(lambda v: len(v.dims) > 0 and v.kind != "boolean" and v.exact)
    if keys is None or value_count(keys) > 600:
        return
    payload = scope.some(lambda v: v.dims == keys.dims) or scope.iota("s32", keys.dims)
    name = f"order_{keys.type}_{payload.type}"
    text = (
        f"{name} {{\n  a = {keys.type}[] parameter(0)\n  b = {keys.type}[] parameter(1)\n"
        f"  c = {payload.type}[] parameter(2)\n  d = {payload.type}[] parameter(3)\n"
        "  ROOT z = pred[] compare(a, b), direction=LT\n}\n"
    )
    if text not in scope.writer.computations:
        scope.writer.computations.append(text)
    axis = scope.draw(0, len(keys.dims) - 1)
    result = scope.writer.name()
    scope.lines.append(
        f"  {result} = ({keys.shape}, {payload.shape}) sort({keys.name}, {payload.name}), "
        f"dimensions={{{axis}}}, is_stable=true, to_apply={name}"
    )
    for index, one in enumerate((keys, payload)):
        more = f"index={index}"
        scope.add(one.type, one.dims, "get-tuple-element", [result], more, one.exact)


def counted(scope: Scope) -> None:
    scope.iota(scope.pick(("f32", "s32", "u32", "s16", "u16")), scope.writer.dims())


# Control flow


def carried(scope: Scope, count: int) -> list[Value]:
    return [scope.any() for _ in range(count)]


def returned(inner: Scope, wanted: Value) -> tuple[Value, bool]:
    """A value of the form of another one; whether it is as exact."""
    found = inner.some(
        lambda v: (v.type, v.dims) == (wanted.type, wanted.dims) and (v.exact or not wanted.exact)
    )
    assert found is not None
    return found, found.exact


def looped(scope: Scope) -> None:
    if scope.depth > 1:
        return
    state = carried(scope, scope.draw(1, 3))
    writer, number = scope.writer, scope.writer.name()
    shapes = ", ".join(["s32[]", *(value.shape for value in state)])
    counter = Value(f"i{number}", "s32", (), True)
    # What a loop makes of an exact value stays exact, of others it does not matter.
    inside = [v._replace(name=f"c{number}_{i}") for i, v in enumerate(state)]
    body = Scope(writer, [counter, *inside], scope.depth + 1)
    take_steps(body, scope.draw(1, 4))
    carry = [returned(body, value)[0] for value in inside]
    picks = "\n".join(
        f"  {v.name} = {v.shape} get-tuple-element(s), index={i}"
        for i, v in enumerate([counter, *inside])
    )
    trips = scope.draw(0, 4)
    writer.computations += [
        f"body{number} {{\n  s = ({shapes}) parameter(0)\n{picks}\n"
        + "\n".join(body.lines)
        + f"\n  one = s32[] constant(1)\n  next = s32[] add({counter.name}, one)\n"
        f"  ROOT r = ({shapes}) tuple(next, {', '.join(v.name for v in carry)})\n}}\n",
        f"condition{number} {{\n  s = ({shapes}) parameter(0)\n"
        "  i = s32[] get-tuple-element(s), index=0\n"
        f"  n = s32[] constant({trips})\n  ROOT c = pred[] compare(i, n), direction=LT\n}}\n",
    ]
    zero = scope.number("s32", 0)
    first = f"t{number}"
    names = ", ".join([zero.name, *(v.name for v in state)])
    scope.lines += [
        f"  {first} = ({shapes}) tuple({names})",
        f"  w{number} = ({shapes}) while({first}), condition=condition{number}, body=body{number}",
    ]
    for i, value in enumerate(state, 1):
        more = f"index={i}"
        scope.add(value.type, value.dims, "get-tuple-element", [f"w{number}"], more, value.exact)


def branched(scope: Scope) -> None:
    if scope.depth > 1:
        return
    given, wanted = carried(scope, 2), scope.any()
    writer, number = scope.writer, scope.writer.name()
    count = 2 if scope.draw(0, 1) else 3
    index = scope.scalar()
    if count == 2:
        more = f"direction={scope.pick(('EQ', 'LT', 'GE'))}"
        zero = scope.number("s32", 1)
        index = scope.add("pred", (), "compare", [index, zero], more, known=False)
    arguments = [*given, wanted]
    shapes = ", ".join(value.shape for value in arguments)
    exact = []
    for branch in range(count):
        inside = [v._replace(name=f"b{number}_{branch}_{i}") for i, v in enumerate(arguments)]
        inner = Scope(writer, list(inside), scope.depth + 1)
        take_steps(inner, scope.draw(0, 3))
        result, is_exact = returned(inner, inside[-1])
        exact.append(is_exact)
        picks = "\n".join(
            f"  {v.name} = {v.shape} get-tuple-element(s), index={i}" for i, v in enumerate(inside)
        )
        writer.computations.append(
            f"branch{number}_{branch} {{\n  s = ({shapes}) parameter(0)\n{picks}\n"
            + "\n".join(inner.lines)
            + f"\n  ROOT r = {result.shape} copy({result.name})\n}}\n"
        )
    scope.lines.append(f"  t{number} = ({shapes}) tuple({', '.join(v.name for v in arguments)})")
    names = ", ".join(f"branch{number}_{branch}" for branch in range(count))
    if count == 2:
        first, second = names.split(", ")
        more = f"true_computation={first}, false_computation={second}"
    else:
        more = f"branch_computations={{{names}}}"
    operands = [index.name, *[f"t{number}"] * count]
    scope.add(wanted.type, wanted.dims, "conditional", operands, more, all(exact))


STEPS: tuple[tuple[Callable[[Scope], None], int], ...] = (
    (unary, 4),
    (binary, 6),
    (selected, 2),
    (compared, 1),
    (converted, 2),
    (moved, 4),
    (sliced, 2),
    (padded, 1),
    (joined, 1),
    (reduced, 3),
    (windowed, 1),
    (multiplied, 3),
    (convolved, 1),
    (at_a_place, 1),
    (indexed, 2),
    (sorted_, 1),
    (counted, 1),
    (looped, 1),
    (branched, 1),
)
"""Steps, and how often one of so many is taken."""

_CHOICES = [step for step, weight in STEPS for _ in range(weight)]


def take_steps(scope: Scope, count: int) -> None:
    for _ in range(count):
        scope.pick(_CHOICES)(scope)


def parameter(scope: Scope, type: str, dims: tuple[int, ...]) -> Value:
    """A parameter of the entry computation."""
    number = len(scope.writer.parameters)
    value = Value(f"p{number}", type, dims, True)
    scope.writer.parameters.append(value)
    layout = scope.writer.layout(len(dims))
    scope.lines.append(f"  p{number} = {value.shape}{layout} parameter({number})")
    return value


def random_graph(draw: Draw, most: int = 10) -> RandomGraph:
    """A graph of up to so many steps, and inputs for it."""
    writer = Writer(draw)
    entry = Scope(writer, [], 0)
    shared = writer.dims()
    for number in range(draw(1, 3)):
        type = writer.pick((*FLOATS, *FLOATS, *INTEGERS, "pred"))
        entry.known.append(parameter(entry, type, writer.dims() if number == 2 else shared))
    take_steps(entry, draw(1, most))
    known = entry.known
    results = [known[-1], *(writer.pick(known) for _ in range(draw(0, 2)))]
    shapes, names = ", ".join(v.shape for v in results), ", ".join(v.name for v in results)
    lines = [*entry.lines, f"  ROOT r = ({shapes}) tuple({names})"]
    text = "\n".join(["HloModule random", "", *writer.computations, "ENTRY e {", *lines, "}", ""])
    rng = np.random.default_rng(draw(0, 1 << 30))
    return RandomGraph(text, [numbers(rng, value) for value in writer.parameters])


def numbers(rng: np.random.Generator, value: Value) -> np.ndarray[Any, Any]:
    """Elements of a parameter: small whole numbers, of floats others too, of integers limits."""
    dtype = PRIMITIVE_TYPES[value.type].numpy
    if value.kind == "boolean":
        return rng.integers(0, 2, value.dims).astype(bool)
    if value.kind == "real":
        whole = rng.integers(-4, 5, value.dims).astype(np.float32)
        real = rng.standard_normal(value.dims)
        return np.where(rng.integers(0, 4, value.dims) == 0, whole, real).astype(dtype)
    low = 0 if value.kind == "unsigned" else -20
    small = rng.integers(low, 60, value.dims)
    limits = np.iinfo(dtype)
    edge = rng.choice(np.array([limits.min, limits.max, limits.max // 3], np.int64), value.dims)
    return np.where(rng.integers(0, 9, value.dims) == 0, edge, small).astype(dtype)
