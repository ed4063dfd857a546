"""Random modules of one structured operation each, for comparison with another evaluator.

`FAMILIES` maps a name to a function of a generator that returns (module text, inputs, tolerance).
Cases that the specification leaves open (windows half outside a scatter, ties) do not occur.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from operator_values import ULPS, braces, by_x, module_text, sizes, values

from graph_compiler.hlo import PRIMITIVE_TYPES

Case: TypeAlias = tuple[str, list[np.ndarray[Any, Any]], float]
Random: TypeAlias = np.random.Generator


def pick(rng: Random, low: int, high: int) -> int:
    return int(rng.integers(low, high + 1))


def picks(rng: Random, count: int, low: int, high: int) -> list[int]:
    return [pick(rng, low, high) for _ in range(count)]


def numbers(rng: Random, name: str, shape: Any) -> np.ndarray[Any, Any]:
    if name[0] in "su":
        return values(rng, name, shape)
    drawn = rng.standard_normal(shape)
    if name == "c64":
        drawn = drawn + 1j * rng.standard_normal(shape)
    return drawn.astype(PRIMITIVE_TYPES[name].numpy)


def small(rng: Random, name: str, shape: Any) -> np.ndarray[Any, Any]:
    return rng.integers(-9, 9, shape).astype(PRIMITIVE_TYPES[name].numpy)


def reducer(name: str, body: str) -> str:
    return (
        f"reducer {{\n  a = {name}[] parameter(0)\n  b = {name}[] parameter(1)\n"
        + body.replace("T[]", f"{name}[]")
        + "\n}\n"
    )


REDUCERS = {
    "add": "  ROOT z = T[] add(a, b)",
    "multiply": "  ROOT z = T[] multiply(a, b)",
    "maximum": "  ROOT z = T[] maximum(a, b)",
    "minimum": "  ROOT z = T[] minimum(b, a)",
    "clamped": "  m = T[] maximum(a, b)\n  n = T[] negate(m)\n  ROOT z = T[] negate(n)",
}
NEUTRAL = {"add": 0, "multiply": 1, "maximum": -99, "minimum": 99, "clamped": -99}


def placed(places: list[int], sizes_in_order: list[int]) -> list[int]:
    found = [0] * len(places)
    for place, size in zip(places, sizes_in_order):
        found[place] = size
    return found


def window_size(
    size: int, window: int, stride: int, low: int, high: int, base: int, far: int
) -> int:
    padded, reach = (size - 1) * base + 1 + low + high, (window - 1) * far + 1
    return 0 if padded < reach else (padded - reach) // stride + 1


def convolution(rng: Random) -> Case:
    rank, groups = pick(rng, 1, 3), pick(rng, 1, 3)
    kind = ("", "feature", "batch")[pick(rng, 0, 2)]
    batch = pick(rng, 1, 3) * (groups if kind == "batch" else 1)
    features = pick(rng, 1, 3)
    outputs = pick(rng, 1, 3) * groups
    inputs = features * (groups if kind == "feature" else 1)
    spatial, kernel = picks(rng, rank, 2, 7), picks(rng, rank, 1, 4)
    stride, low, high = picks(rng, rank, 1, 3), picks(rng, rank, -1, 3), picks(rng, rank, 0, 3)
    far, base, turned = picks(rng, rank, 1, 2), picks(rng, rank, 1, 3), picks(rng, rank, 0, 1)
    out = [window_size(*each) for each in zip(spatial, kernel, stride, low, high, base, far)]
    orders = [[int(i) for i in rng.permutation(rank + 2)] for _ in range(3)]

    def label(order: list[int], first: str, second: str) -> str:
        letters = [first, second, *map(str, range(rank))]
        return "".join(letters[order.index(place)] for place in range(rank + 2))

    name = ("f32", "f64", "s32", "bf16")[pick(rng, 0, 3)]
    x_shape = placed(orders[0], [batch, inputs, *spatial])
    w_shape = placed(orders[1], [outputs, features, *kernel])
    result = placed(orders[2], [batch // groups if kind == "batch" else batch, outputs, *out])
    pads = by_x(f"{a}_{b}" for a, b in zip(low, high))
    attributes = (
        f"window={{size={by_x(kernel)} stride={by_x(stride)} pad={pads} lhs_dilate={by_x(base)}"
        f" rhs_dilate={by_x(far)} rhs_reversal={by_x(turned)}}}, dim_labels="
        f"{label(orders[0], 'b', 'f')}_{label(orders[1], 'o', 'i')}->{label(orders[2], 'b', 'f')}"
    )
    if kind:
        attributes += f", {kind}_group_count={groups}"
    text = module_text(
        "convolution",
        name + sizes(result),
        [name + sizes(x_shape), name + sizes(w_shape)],
        attributes,
    )
    tolerance = 0.0 if name == "s32" else max(1e-11, ULPS[name])
    return text, [numbers(rng, name, x_shape), numbers(rng, name, w_shape)], tolerance


DOT_TYPES = (
    *(("f32", "f32"), ("bf16", "bf16"), ("bf16", "f32"), ("f64", "f64"), ("c64", "c64")),
    *(("s32", "s32"), ("s8", "s32")),
)


def dot(rng: Random) -> Case:
    batch, contracting = picks(rng, pick(rng, 0, 2), 1, 3), picks(rng, pick(rng, 0, 2), 0, 4)
    name, result = DOT_TYPES[pick(rng, 0, len(DOT_TYPES) - 1)]
    shapes, places, frees = [], [], []
    for _ in range(2):
        free = picks(rng, pick(rng, 0, 2), 1, 4)
        order = [int(i) for i in rng.permutation(len(batch) + len(contracting) + len(free))]
        shapes.append(placed(order, [*batch, *contracting, *free]))
        places.append(order)
        end = len(batch) + len(contracting)
        frees.append([shapes[-1][place] for place in sorted(order[end:])])
    attributes = ", ".join(
        f"{side}_batch_dims={braces(order[: len(batch)])}, {side}_contracting_dims="
        + braces(order[len(batch) : len(batch) + len(contracting)])
        for side, order in zip(("lhs", "rhs"), places)
    )
    text = module_text(
        "dot",
        result + sizes([*batch, *frees[0], *frees[1]]),
        [name + sizes(shape) for shape in shapes],
        attributes,
    )
    tolerance = 0.0 if name[0] == "s" else max(1e-11, ULPS[result])
    return text, [numbers(rng, name, shape) for shape in shapes], tolerance


def reduce_window(rng: Random) -> Case:
    rank = pick(rng, 1, 3)
    shape, window = picks(rng, rank, 1, 6), picks(rng, rank, 1, 4)
    stride, far, base = picks(rng, rank, 1, 3), picks(rng, rank, 1, 2), picks(rng, rank, 1, 2)
    low, high = picks(rng, rank, 0, 3), picks(rng, rank, 0, 3)
    if rank == 1 and pick(rng, 0, 1):  # a cumulated sum
        window, stride, far, base = list(shape), [1], [1], [1]
        low, high = [shape[0] - 1], [0]
    result = [window_size(*each) for each in zip(shape, window, stride, low, high, base, far)]
    operation = list(REDUCERS)[pick(rng, 0, len(REDUCERS) - 1)]
    name = ("f32", "f64", "s32")[pick(rng, 0, 2)]
    pads = by_x(f"{a}_{b}" for a, b in zip(low, high))
    attributes = (
        f"window={{size={by_x(window)} stride={by_x(stride)} pad={pads} lhs_dilate={by_x(base)}"
        f" rhs_dilate={by_x(far)}}}, to_apply=reducer"
    )
    text = module_text(
        "reduce-window",
        name + sizes(result),
        [name + sizes(shape), f"{name}[]"],
        attributes,
        reducer(name, REDUCERS[operation]),
    )
    initial = np.array(NEUTRAL[operation], PRIMITIVE_TYPES[name].numpy)
    tolerance = 0.0 if name == "s32" else max(1e-11, ULPS[name])
    return text, [small(rng, name, shape), initial], tolerance


def reduce(rng: Random) -> Case:
    rank = pick(rng, 1, 4)
    shape = picks(rng, rank, 1, 6)
    axes = sorted(int(i) for i in rng.permutation(rank)[: pick(rng, 1, rank)])
    result = [size for axis, size in enumerate(shape) if axis not in axes]
    operation = list(REDUCERS)[pick(rng, 0, len(REDUCERS) - 1)]
    name = ("f32", "f64", "s32", "s8")[pick(rng, 0, 3)]
    text = module_text(
        "reduce",
        name + sizes(result),
        [name + sizes(shape), f"{name}[]"],
        f"dimensions={braces(axes)}, to_apply=reducer",
        reducer(name, REDUCERS[operation]),
    )
    tolerance = 0.0 if name[0] == "s" else max(1e-11, ULPS[name])
    initial = np.array(NEUTRAL[operation], PRIMITIVE_TYPES[name].numpy)
    return text, [numbers(rng, name, shape), initial], tolerance


ARG_MAX = """reducer {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  k = s32[] parameter(3)
  above = pred[] compare(a, b), direction=GT
  equal = pred[] compare(a, b), direction=EQ
  earlier = pred[] compare(i, k), direction=LT
  tie = pred[] and(equal, earlier)
  stays = pred[] or(above, tie)
  value = f32[] select(stays, a, b)
  index = s32[] select(stays, i, k)
  ROOT z = (f32[], s32[]) tuple(value, index)
}
"""


def arg_max(rng: Random) -> Case:
    shape = picks(rng, 2, 1, 9)
    axis = pick(rng, 0, 1)
    kept = sizes([shape[1 - axis]])
    text = module_text(
        "reduce",
        f"(f32{kept}, s32{kept})",
        ["f32" + sizes(shape), "s32" + sizes(shape), "f32[]", "s32[]"],
        f"dimensions={{{axis}}}, to_apply=reducer",
        ARG_MAX,
    )
    index = np.broadcast_to(
        np.arange(shape[axis], dtype=np.int32), shape[::-1] if axis == 0 else shape
    )
    index = np.ascontiguousarray(index.T if axis == 0 else index)
    initial = [np.float32(-np.inf), np.int32(0)]
    return text, [small(rng, "f32", shape), index, *map(np.asarray, initial)], 0.0


def _indexing(rng: Random) -> dict[str, Any]:
    """Dimension numbers that gather and scatter share."""
    rank, batch_rank = pick(rng, 1, 4), pick(rng, 0, 2)
    shape = picks(rng, rank, 1, 5)
    order = [int(i) for i in rng.permutation(rank)]
    length = pick(rng, 1, rank)
    batching = order[length : length + 1] if batch_rank and pick(rng, 0, 1) else []
    batch = picks(rng, batch_rank, 1, 4)
    place = [pick(rng, 0, batch_rank - 1)] if batching else []
    if batching:
        batch[place[0]] = shape[batching[0]]
    axis = pick(rng, 0, batch_rank)
    implicit = length == 1 and axis == batch_rank
    indices = batch if implicit else [*batch[:axis], length, *batch[axis:]]
    slices = [pick(rng, 1, size) for size in shape]
    dropped = sorted(i for i in range(rank) if i not in batching and pick(rng, 0, 1))
    for i in [*dropped, *batching]:
        slices[i] = 1
    window = [slices[i] for i in range(rank) if i not in dropped and i not in batching]
    result_rank = len(batch) + len(window)
    offsets = sorted(int(i) for i in rng.permutation(result_rank)[: len(window)])
    windows, batches = iter(window), iter(batch)
    result = [next(windows) if i in offsets else next(batches) for i in range(result_rank)]
    return {
        "shape": shape,
        "indices": indices,
        "axis": axis,
        "implicit": implicit,
        "map": order[:length],
        "batching": batching,
        "index_batching": [i + (not implicit and i >= axis) for i in place],
        "slices": slices,
        "dropped": dropped,
        "offsets": offsets,
        "result": result,
    }


def gather(rng: Random) -> Case:
    form = _indexing(rng)
    attributes = (
        f"offset_dims={braces(form['offsets'])}, collapsed_slice_dims={braces(form['dropped'])},"
        f" start_index_map={braces(form['map'])}, operand_batching_dims={braces(form['batching'])},"
        f" start_indices_batching_dims={braces(form['index_batching'])},"
        f" index_vector_dim={form['axis']}, slice_sizes={braces(form['slices'])}"
    )
    text = module_text(
        "gather",
        "f32" + sizes(form["result"]),
        ["f32" + sizes(form["shape"]), "s32" + sizes(form["indices"])],
        attributes,
    )
    indices = rng.integers(-2, 7, form["indices"]).astype(np.int32)
    return text, [small(rng, "f32", form["shape"]), indices], 0.0


COMBINERS = {
    "add": REDUCERS["add"],
    "maximum": REDUCERS["maximum"],
    "first": "  c = T[] constant(2)\n  s = T[] multiply(a, c)\n  ROOT z = T[] add(s, b)",
}


def scatter(rng: Random) -> Case:
    form = _indexing(rng)
    name = ("f32", "s32")[pick(rng, 0, 1)]
    attributes = (
        f"update_window_dims={braces(form['offsets'])},"
        f" inserted_window_dims={braces(form['dropped'])},"
        f" scatter_dims_to_operand_dims={braces(form['map'])},"
        f" input_batching_dims={braces(form['batching'])},"
        f" scatter_indices_batching_dims={braces(form['index_batching'])},"
        f" index_vector_dim={form['axis']}, to_apply=reducer"
    )
    combiner = COMBINERS[list(COMBINERS)[pick(rng, 0, 2)]]
    text = module_text(
        "scatter",
        name + sizes(form["shape"]),
        [name + sizes(form[part]) for part in ("shape",)]
        + ["s32" + sizes(form["indices"]), name + sizes(form["result"])],
        attributes,
        reducer(name, combiner),
    )
    # XLA leaves a window out whole where a part of it is outside; the document leaves out the part.
    indices = rng.integers(0, 5, form["indices"]).astype(np.int32)
    vectors = (
        indices[..., np.newaxis] if form["implicit"] else np.moveaxis(indices, form["axis"], -1)
    )
    for component, axis in enumerate(form["map"]):
        last = form["shape"][axis] - form["slices"][axis]
        column = vectors[..., component]
        outside = rng.integers(0, 4, column.shape) == 0
        column[...] = np.where(outside, np.where(column > 2, 99, -99), np.minimum(column, last))
    inputs = [small(rng, name, form["shape"]), indices, small(rng, name, form["result"])]
    return text, inputs, 0.0


def pad(rng: Random) -> Case:
    rank = pick(rng, 1, 3)
    while True:
        shape = picks(rng, rank, 0, 5)
        edges = [(pick(rng, -3, 3), pick(rng, -3, 3), pick(rng, 0, 2)) for _ in shape]
        result = [
            size + low + high + max(size - 1, 0) * interior
            for size, (low, high, interior) in zip(shape, edges)
        ]
        if min(result) >= 0:
            break
    padding = by_x("_".join(map(str, edge)) for edge in edges)
    text = module_text(
        "pad", "f32" + sizes(result), ["f32" + sizes(shape), "f32[]"], f"padding={padding}"
    )
    return text, [small(rng, "f32", shape), np.float32(-1)], 0.0


COMPARATORS = {
    "key": "  ROOT z = pred[] compare(a, b), direction=D",
    "square": "  p = T[] multiply(a, a)\n  q = T[] multiply(b, b)\n"
    "  ROOT z = pred[] compare(p, q), direction=D",
    "keys": "  l = pred[] compare(a, b), direction=D\n  e = pred[] compare(a, b), direction=EQ\n"
    "  m = pred[] compare(c, d), direction=LT\n  n = pred[] and(e, m)\n"
    "  ROOT z = pred[] or(l, n)",
}


def sort(rng: Random) -> Case:
    rank = pick(rng, 1, 3)
    shape = picks(rng, rank, 1, 20)
    name = ("f32", "s32", "u8")[pick(rng, 0, 2)]
    body = COMPARATORS[list(COMPARATORS)[pick(rng, 0, 2)]]
    body = body.replace("=D", ("=LT", "=GT")[pick(rng, 0, 1)]).replace("T[]", f"{name}[]")
    parameters = "".join(
        f"  {letter} = {kind}[] parameter({number})\n"
        for number, (letter, kind) in enumerate(
            zip("abcdgh", (name, name, "s32", "s32", "s32", "s32"))
        )
    )
    shapes = [name + sizes(shape), "s32" + sizes(shape), "s32" + sizes(shape)]
    text = module_text(
        "sort",
        f"({', '.join(shapes)})",
        shapes,
        f"dimensions={{{pick(rng, 0, rank - 1)}}}, is_stable=true, to_apply=comparator",
        f"comparator {{\n{parameters}{body}\n}}\n",
    )
    keys = np.abs(small(rng, "s32", shape)) if name == "u8" else small(rng, name, shape)
    payload = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    second = rng.integers(0, 3, shape).astype(np.int32)
    return text, [keys.astype(PRIMITIVE_TYPES[name].numpy), second, payload], 0.0


def triangular_solve(rng: Random) -> Case:
    size, columns = pick(rng, 1, 6), pick(rng, 1, 5)
    left = pick(rng, 0, 1)
    name = ("f32", "c64")[pick(rng, 0, 1)]
    matrix = numbers(rng, name, (2, size, size)) + 3 * np.eye(size, dtype=np.float32)
    b_shape = (2, size, columns) if left else (2, columns, size)
    flags = ["false", "true"]
    transpose = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")[pick(rng, 0, 2)]
    attributes = (
        f"left_side={flags[left]}, lower={flags[pick(rng, 0, 1)]},"
        f" unit_diagonal={flags[pick(rng, 0, 1)]}, transpose_a={transpose}"
    )
    text = module_text(
        "triangular-solve",
        name + sizes(b_shape),
        [name + sizes(matrix.shape), name + sizes(b_shape)],
        attributes,
    )
    return text, [matrix.astype(PRIMITIVE_TYPES[name].numpy), numbers(rng, name, b_shape)], 1e-3


def batch_norm(rng: Random) -> Case:
    rank = pick(rng, 2, 4)
    shape = picks(rng, rank, 2, 5)
    feature = pick(rng, 0, rank - 1)
    vector = sizes([shape[feature]])
    whole = "f32" + sizes(shape)
    columns = [numbers(rng, "f32", (shape[feature],)) for _ in range(3)]
    spread = np.abs(numbers(rng, "f32", (shape[feature],))) + np.float32(0.5)
    x = numbers(rng, "f32", shape)
    attributes = f"epsilon=0.01, feature_index={feature}"
    triple = f"({whole}, f32{vector}, f32{vector})"
    kind = pick(rng, 0, 2)
    if kind == 0:
        shapes, inputs = [whole, *["f32" + vector] * 2], [x, *columns[:2]]
        return module_text("batch-norm-training", triple, shapes, attributes), inputs, 1e-4
    if kind == 1:
        shapes, inputs = [whole, *["f32" + vector] * 4], [x, *columns, spread]
        return module_text("batch-norm-inference", whole, shapes, attributes), inputs, 1e-4
    shapes = [whole, *["f32" + vector] * 3, whole]
    inputs = [x, *columns[:2], spread, numbers(rng, "f32", shape)]
    return module_text("batch-norm-grad", triple, shapes, attributes), inputs, 1e-4


def rng_bits(rng: Random) -> Case:
    algorithm, length = (
        ("rng_three_fry", 2),
        ("rng_philox", 3),
        ("rng_philox", 2),
        ("rng_default", 3),
    )[pick(rng, 0, 3)]
    name = ("u8", "u16", "u32", "u64")[pick(rng, 0, 3)]
    shape = picks(rng, pick(rng, 0, 3), 1, 6)
    state = f"u64[{length}]"
    text = module_text(
        "rng-bit-generator",
        f"({state}, {name}{sizes(shape)})",
        [state],
        f"algorithm={algorithm}",
    )
    words = rng.integers(0, 1 << 64, length, dtype=np.uint64)
    words[1] = np.uint64((1 << 64) - pick(rng, 1, 3))  # the counter carries
    return text, [words], 0.0


FAMILIES: dict[str, Callable[[Random], Case]] = {
    function.__name__: function
    for function in (
        convolution,
        dot,
        reduce,
        reduce_window,
        arg_max,
        gather,
        scatter,
        pad,
        sort,
        triangular_solve,
        batch_norm,
        rng_bits,
    )
}
