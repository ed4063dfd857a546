"""Steps of random graphs that move elements: broadcasts, transpositions, slices, pads, joins."""

from __future__ import annotations

import math

from operator_values import braces, by_x
from random_graphs import MOST, Scope, Value


def moved(scope: Scope) -> None:
    value = scope.any()
    rank = len(value.dims)
    if rank == 0 or scope.draw(0, 3) == 0:
        size = scope.pick(scope.writer.pool)
        if value_count(value) * size > MOST:
            return
        axis = scope.draw(0, rank)
        dims = [*value.dims[:axis], size, *value.dims[axis:]]
        axes = braces([i for i in range(rank + 1) if i != axis])
        scope.add(value.type, dims, "broadcast", [value], f"dimensions={axes}", value.exact)
    elif scope.draw(0, 1):
        order = sorted(range(rank), key=lambda _: scope.draw(0, 99))
        dims = [value.dims[axis] for axis in order]
        more = f"dimensions={braces(order)}"
        scope.add(value.type, dims, "transpose", [value], more, value.exact)
    elif scope.draw(0, 1):
        scope.add(value.type, reshaped(scope, value), "reshape", [value], exact=value.exact)
    else:
        axes = [axis for axis in range(rank) if scope.draw(0, 1)]
        more = f"dimensions={braces(axes)}"
        scope.add(value.type, value.dims, "reverse", [value], more, value.exact)


def value_count(value: Value) -> int:
    return math.prod(value.dims)


def reshaped(scope: Scope, value: Value) -> list[int]:
    dims = list(value.dims)
    axis = scope.draw(0, len(dims) - 1)
    if len(dims) > 1 and scope.draw(0, 1):
        axis = min(axis, len(dims) - 2)
        return [*dims[:axis], dims[axis] * dims[axis + 1], *dims[axis + 2 :]]
    parts = [size for size in range(1, dims[axis] + 1) if dims[axis] % size == 0]
    part = scope.pick(parts)
    return [*dims[:axis], part, dims[axis] // part, *dims[axis + 1 :]]


def sliced(scope: Scope) -> None:
    value = scope.any()
    parts = []
    for size in value.dims:
        start = scope.draw(0, size - 1)
        end = scope.draw(start + 1, size)
        parts.append((start, end, scope.draw(1, 3)) if scope.draw(0, 2) else (0, size, 1))
    dims = [-(-(end - start) // step) for start, end, step in parts]
    text = ",".join(f"[{start}:{end}:{step}]" for start, end, step in parts)
    scope.add(value.type, dims, "slice", [value], f"slice={{{text}}}", value.exact)


def padded(scope: Scope) -> None:
    value = scope.some(lambda v: v.type != "pred")
    if value is None or not value.dims:
        return
    edges = []
    for size in value.dims:
        low, high, inner = (scope.draw(-1, 2) for _ in range(3))
        edge = (low, high, max(0, inner - 1)) if scope.draw(0, 1) else (0, 0, 0)
        wide = size + edge[0] + edge[1] + (size - 1) * edge[2]
        edges.append(edge if wide > 0 else (0, 0, 0))
    dims = [s + a + b + (s - 1) * c for s, (a, b, c) in zip(value.dims, edges)]
    if math.prod(dims) > MOST:
        return
    more = "padding=" + by_x("_".join(map(str, edge)) for edge in edges)
    fill = scope.number(value.type, scope.draw(0, 2))
    scope.add(value.type, dims, "pad", [value, fill], more, value.exact)


def joined(scope: Scope) -> None:
    value = scope.some(lambda v: len(v.dims) > 0)
    if value is None:
        return
    axis = scope.draw(0, len(value.dims) - 1)

    def fits(other: Value) -> bool:
        rest = other.dims[:axis] + other.dims[axis + 1 :]
        return (
            other.type == value.type
            and len(other.dims) == len(value.dims)
            and rest == value.dims[:axis] + value.dims[axis + 1 :]
        )

    parts = [value, *filter(None, [scope.some(fits) for _ in range(scope.draw(1, 2))])]
    dims = list(value.dims)
    dims[axis] = sum(part.dims[axis] for part in parts)
    if math.prod(dims) <= MOST:
        exact = all(part.exact for part in parts)
        more = f"dimensions={{{axis}}}"
        scope.add(value.type, dims, "concatenate", parts, more, exact)
