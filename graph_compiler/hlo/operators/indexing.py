"""Gather and scatter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.hlo.operators.elementwise.unary import INTEGER
from graph_compiler.hlo.operators.folding import Folder, chosen_parameter
from graph_compiler.hlo.operators.row import (
    Array,
    CalledWork,
    Evaluation,
    HloOperator,
    Work,
    check_axes,
    check_scalar_computation,
    operand_array,
    require_kind,
    require_shape,
    require_type,
    tuple_or_one,
)

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.hlo.types import Shape


def index_vectors(indices: Array, axis: int) -> Array:
    """Start indices with the index vector on the last dimension, as int64."""
    wide = indices.astype(np.int64)
    if axis == indices.ndim:
        return wide[..., np.newaxis]
    return np.moveaxis(wide, axis, -1)


def _without(sizes: Sequence[int], axes: Any) -> list[int]:
    return [size for axis, size in enumerate(sizes) if axis not in axes]


def _check_index_vector(
    instruction: Instruction, indices: Shape, axis: int, places: Any, rank: int
) -> None:
    require_kind(instruction, indices.primitive, INTEGER, "the start indices")
    require_shape(
        0 <= axis <= indices.rank,
        instruction,
        f"`index_vector_dim` is {axis} for {indices}.",
        "The index vector is a dimension of the start indices, or follows the last.",
    )
    length = indices.dimensions[axis] if axis < indices.rank else 1
    require_shape(
        len(places) == length,
        instruction,
        f"index vectors have {length} components for the dimensions {tuple(places)}.",
        "Every component of an index vector belongs to a dimension of the operand.",
    )
    check_axes(instruction, places, rank, "the dimensions that the indices start in")


class Gather(HloOperator):
    """Slices of operand 0 at the index vectors of operand 1.

    A start is clamped so that its slice lies inside. The dimensions of the slices that are neither
    collapsed nor batching become `offset_dims` of the result, those of the indices the others.
    """

    opcode = "gather"
    builders = ("Gather",)
    stablehlo = "gather"
    attributes = ("gather_dimension_numbers", "gather_slice_sizes", "indices_are_sorted")
    arity = (2, 2)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape, indices = operand_array(instruction, 0), operand_array(instruction, 1)
        numbers = instruction.attribute("gather_dimension_numbers")
        require_shape(
            numbers is not None,
            instruction,
            "it has no dimension numbers.",
            "A gather states its dimension numbers.",
        )
        sizes = instruction.attribute("gather_slice_sizes")
        require_shape(
            len(sizes) == shape.rank
            and all(0 <= size <= whole for size, whole in zip(sizes, shape.dimensions)),
            instruction,
            f"it takes slices of {list(sizes)} from {shape}.",
            "Slice sizes are stated for every dimension and fit into the operand.",
        )
        axis = numbers.index_vector_dim
        _check_index_vector(instruction, indices, axis, numbers.start_index_map, shape.rank)
        dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
        check_axes(instruction, dropped, shape.rank, "collapsed and batching dimensions")
        require_shape(
            all(sizes[i] <= 1 for i in dropped),
            instruction,
            f"it drops the dimensions {dropped} of slices {list(sizes)}.",
            "Dimensions that are collapsed or batching have slices of size 1.",
        )
        _check_batching(
            instruction,
            (shape, numbers.operand_batching_dims, numbers.start_index_map),
            (indices, numbers.start_indices_batching_dims, axis),
        )
        offsets = _without(sizes, dropped)
        batch = _without(indices.dimensions, (axis,))
        found = shape.with_dimensions(
            _combine(instruction, batch, offsets, numbers.offset_dims, "`offset_dims`")
        )
        require_shape(
            all(sizes[i] for i in dropped) or not found.size,
            instruction,
            f"it makes {found} of slices {list(sizes)}, which have no elements.",
            "An element of the result is one of a slice.",
        )
        return found

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        operand, indices = operands
        numbers = instruction.attribute("gather_dimension_numbers")
        sizes = instruction.attribute("gather_slice_sizes")
        vectors = index_vectors(indices, numbers.index_vector_dim)
        batch = vectors.shape[:-1]
        starts: list[Any] = [None] * operand.ndim
        for component, axis in enumerate(numbers.start_index_map):
            last = operand.shape[axis] - sizes[axis]
            starts[axis] = np.clip(vectors[..., component], 0, last)
        _add_batch_starts(starts, batch, numbers.operand_batching_dims, numbers)
        dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
        if math.prod(batch) * math.prod(sizes) == 0:
            return np.empty(instruction.shape.dimensions, operand.dtype)
        index, kept, whole = _full_index(starts, batch, sizes, operand.shape, dropped)
        gathered = operand[index] if index else operand
        gathered = gathered.reshape([*batch, *kept, *whole])
        # Now batch dimensions come first, then those of the slices; put both in their places.
        offsets = list(numbers.offset_dims)
        others = [axis for axis in range(gathered.ndim) if axis not in offsets]
        return gathered.transpose(np.argsort(others + offsets)) if gathered.ndim else gathered


def _check_batching(
    instruction: Instruction, operand: tuple[Shape, Any, Any], indices: tuple[Shape, Any, int]
) -> None:
    """Batching dimensions of operand and indices go together, and no index says where one starts
    (StableHLO, gather and scatter)."""
    (shape, axes, places), (index_shape, index_axes, vector_axis) = operand, indices
    started = "dimensions that the indices start in and batching dimensions"
    check_axes(instruction, (*places, *axes), shape.rank, started)
    known = (*index_axes, vector_axis) if vector_axis < index_shape.rank else index_axes
    check_axes(
        instruction, known, index_shape.rank, "batching dimensions and index vector of the indices"
    )
    require_shape(
        len(axes) == len(index_axes)
        and all(
            shape.dimensions[axis] == index_shape.dimensions[other]
            for axis, other in zip(axes, index_axes)
        ),
        instruction,
        f"batching dimensions {tuple(axes)} of {shape} go with {tuple(index_axes)} of"
        f" {index_shape}.",
        "Batching dimensions of operand and indices are equal in number and sizes.",
    )


def _combine(
    instruction: Instruction, batch: list[int], window: list[int], places: Any, what: str
) -> list[int]:
    """Sizes in which window dimensions are at `places` and batch dimensions at the others."""
    rank = len(batch) + len(window)
    check_axes(instruction, places, rank, what, sort=True)
    require_shape(
        len(places) == len(window),
        instruction,
        f"{what} is {tuple(places)} for {len(window)} dimensions of the slices.",
        "Every dimension of the slices that is kept has its place.",
    )
    batch_sizes, window_sizes = iter(batch), iter(window)
    return [next(window_sizes) if axis in places else next(batch_sizes) for axis in range(rank)]


def _add_batch_starts(starts: list[Any], batch: tuple[int, ...], axes: Any, numbers: Any) -> None:
    """Batching dimensions start at the index of the batch dimension that they go with."""
    for axis, other in zip(axes, getattr(numbers, _BATCHING[numbers.message])):
        place = other - (1 if other > numbers.index_vector_dim else 0)
        shape = [-1 if i == place else 1 for i in range(len(batch))]
        starts[axis] = np.broadcast_to(np.arange(batch[place]).reshape(shape), batch)


_BATCHING = {
    "GatherDimensionNumbers": "start_indices_batching_dims",
    "ScatterDimensionNumbers": "scatter_indices_batching_dims",
}


def _full_index(
    starts: list[Any],
    batch: tuple[int, ...],
    sizes: Sequence[int],
    whole: Sequence[int],
    dropped: set[int],
) -> tuple[tuple[Array, ...], list[int], list[int]]:
    """Index arrays of the leading dimensions, over batch and slice dimensions.

    Trailing dimensions that slices take whole need no index. Returns the arrays, the slice sizes
    that they cover, and the sizes left to the trailing dimensions.
    """
    rank = len(starts)
    trailing = rank
    while trailing and starts[trailing - 1] is None and sizes[trailing - 1] == whole[trailing - 1]:
        if trailing - 1 in dropped:
            break
        trailing -= 1
    kept = [axis for axis in range(trailing) if axis not in dropped]
    index = []
    for axis in range(trailing):
        start = 0 if starts[axis] is None else starts[axis].reshape([*batch, *[1] * len(kept)])
        if axis in dropped:
            index.append(np.asarray(start))
            continue
        place = kept.index(axis)
        steps = np.arange(sizes[axis]).reshape([-1] + [1] * (len(kept) - 1 - place))
        index.append(start + steps)
    shape = [*batch, *(sizes[axis] for axis in kept)]
    full = tuple(np.broadcast_to(part, shape) for part in index)
    return full, [sizes[axis] for axis in kept], [sizes[axis] for axis in range(trailing, rank)]


class Scatter(HloOperator):
    """Operand 0 with updates combined in at the index vectors of the indices.

    Operands are N arrays, the indices and N updates; the computation takes N present values and N
    updates. An element that would land outside is left out. The order is that of the updates,
    which only matters where targets repeat.
    """

    opcode = "scatter"
    builders = ("Scatter",)
    stablehlo = "scatter"
    attributes = ("scatter_dimension_numbers", "indices_are_sorted", "unique_indices")
    arity = (3, None)
    calls = (1, 1)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        count = len(instruction.operands)
        require_shape(
            count % 2 == 1,
            instruction,
            f"it has {count} operands.",
            "N arrays are followed by the indices and N updates.",
        )
        half = count // 2
        shapes = [operand_array(instruction, i) for i in range(half)]
        indices = operand_array(instruction, half)
        updates = [operand_array(instruction, half + 1 + i) for i in range(half)]
        for shape, update in zip(shapes, updates):
            require_type(
                shape.element_type == update.element_type,
                instruction,
                f"{update} is scattered into {shape}.",
                "Updates have the element type of their operand.",
            )
            require_shape(
                shape.dimensions == shapes[0].dimensions
                and update.dimensions == updates[0].dimensions,
                instruction,
                f"it scatters ({', '.join(map(str, updates))}) into "
                f"({', '.join(map(str, shapes))}).",
                "All operands have the same dimensions, and so have all updates.",
            )
        cls._check_numbers(instruction, shapes[0], indices, updates[0])
        types = [shape.element_type for shape in shapes]
        check_scalar_computation(instruction, instruction.called[0], types * 2, half, folds=True)
        return tuple_or_one(shapes)

    @classmethod
    def work(cls, instruction: Instruction, called: CalledWork) -> Work:
        return called(instruction.called[0]).times(instruction.operands[-1].shape.size)

    @classmethod
    def _check_numbers(
        cls, instruction: Instruction, shape: Shape, indices: Shape, update: Shape
    ) -> None:
        numbers = instruction.attribute("scatter_dimension_numbers")
        require_shape(
            numbers is not None,
            instruction,
            "it has no dimension numbers.",
            "A scatter states its dimension numbers.",
        )
        axis, places = numbers.index_vector_dim, numbers.scatter_dims_to_operand_dims
        _check_index_vector(instruction, indices, axis, places, shape.rank)
        inserted = (*numbers.inserted_window_dims, *numbers.input_batching_dims)
        check_axes(instruction, inserted, shape.rank, "inserted and batching dimensions")
        _check_batching(
            instruction,
            (shape, numbers.input_batching_dims, places),
            (indices, numbers.scatter_indices_batching_dims, axis),
        )
        window = numbers.update_window_dims
        check_axes(instruction, window, update.rank, "`update_window_dims`", sort=True)
        batch = _without(indices.dimensions, (axis,))
        limits = _without(shape.dimensions, inserted)
        require_shape(
            len(window) == len(limits)
            and all(update.dimensions[i] <= limit for i, limit in zip(window, limits))
            and _without(update.dimensions, window) == batch,
            instruction,
            f"updates {update} with window dimensions {tuple(window)} go into {shape} at "
            f"{indices}.",
            "Window dimensions of the updates fit into the operand, the others are those of the"
            " indices.",
        )

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        half = len(operands) // 2
        arrays, indices, updates = operands[:half], operands[half], operands[half + 1 :]
        numbers = instruction.attribute("scatter_dimension_numbers")
        window = list(numbers.update_window_dims)
        others = [axis for axis in range(updates[0].ndim) if axis not in window]
        moved = [update.transpose(others + window) for update in updates]
        batch = moved[0].shape[: len(others)]
        inserted = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
        sizes, rest = [], iter(moved[0].shape[len(others) :])
        for axis in range(arrays[0].ndim):
            sizes.append(1 if axis in inserted else next(rest))
        vectors = index_vectors(indices, numbers.index_vector_dim)
        starts: list[Any] = [None] * arrays[0].ndim
        for component, axis in enumerate(numbers.scatter_dims_to_operand_dims):
            starts[axis] = vectors[..., component].reshape(batch)
        _add_batch_starts(starts, batch, numbers.input_batching_dims, numbers)
        combine = instruction.called[0]
        if math.prod(batch) == 1 and math.prod(sizes):
            corner = [0 if start is None else int(start.reshape(-1)[0]) for start in starts]
            results = _one_block(arrays, corner, sizes, moved, Folder(combine, context))
        else:
            results = _many_blocks(arrays, starts, sizes, moved, inserted, Folder(combine, context))
        return results[0] if half == 1 else tuple(results)


def _many_blocks(
    arrays: list[Array],
    starts: list[Any],
    sizes: list[int],
    updates: list[Array],
    inserted: set[int],
    folder: Folder,
) -> list[Array]:
    """A scatter whose trailing dimensions that updates cover whole move as rows."""
    whole = arrays[0].shape
    split = len(whole)
    while split and starts[split - 1] is None and sizes[split - 1] == whole[split - 1]:
        if split - 1 in inserted:
            break
        split -= 1
    row = list(whole[split:])
    batch = updates[0].shape[: updates[0].ndim - len(whole) + len(inserted)]
    targets, inside = _targets(starts[:split], batch, sizes[:split], whole[:split])
    count = math.prod(whole[:split])
    results = scatter_values(
        [array.reshape([count, *row]) for array in arrays],
        targets[inside],
        [update.reshape([len(targets), *row])[inside] for update in updates],
        folder,
    )
    return [result.reshape(whole) for result in results]


def _targets(
    starts: list[Any], batch: tuple[int, ...], sizes: list[int], whole: tuple[int, ...]
) -> tuple[Array, Array]:
    """Flat target of every update element, and whether it lies inside."""
    flat: Array = np.zeros([*batch, *sizes], np.int64)
    inside = np.ones(flat.shape, bool)
    for axis, start in enumerate(starts):
        first = 0 if start is None else start.reshape([*batch, *[1] * len(sizes)])
        steps = np.arange(sizes[axis]).reshape([-1] + [1] * (len(sizes) - 1 - axis))
        index = first + steps
        if start is not None:
            inside &= (index >= 0) & (index < whole[axis])
        flat = flat * whole[axis] + index
    return flat.reshape(-1), inside.reshape(-1)


def _one_block(
    arrays: list[Array], corner: list[int], sizes: list[int], updates: list[Array], folder: Folder
) -> list[Array]:
    """A scatter of a single window: no target repeats, so it is a block that is combined."""
    target, source = [], []
    for start, size, whole in zip(corner, sizes, arrays[0].shape):
        low, high = max(start, 0), min(start + size, whole)
        target.append(slice(low, max(low, high)))
        source.append(slice(low - start, max(low, high) - start))
    place, part = tuple(target), tuple(source)
    results = [np.array(array) for array in arrays]
    blocks = [update.reshape(sizes)[part] for update in updates]
    present = [result[place] for result in results]
    chosen = chosen_parameter(folder.computation)
    if chosen is not None:
        combined = [present[0] if chosen == 0 else blocks[0]]
    else:
        combined = folder.narrow(folder.combine(folder.widen(present), folder.widen(blocks)))
    for result, value in zip(results, combined):
        result[place] = value
    return results


def scatter_values(
    arrays: list[Array], targets: Array, updates: list[Array], folder: Folder
) -> list[Array]:
    """Arrays with updates combined in at targets along the first dimension, in order."""
    results = [np.array(array) for array in arrays]
    chosen = chosen_parameter(folder.computation)
    if chosen is not None:
        if chosen == 1:
            results[0][targets] = updates[0]  # of a repeated target the last one stays
        return results
    if len(targets) == 0:
        return results
    # Updates of one target next to each other, in their order.
    order = np.argsort(targets, kind="stable")
    ordered = targets[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    places = ordered[first]
    present = folder.widen([result[places] for result in results])
    wide = folder.widen(updates)
    if folder.fold is not None:
        # What is there comes first, as where updates are combined one after another.
        whole = np.insert(wide[0][order], first, present[0], axis=0)
        present = [folder.fold.ufunc.reduceat(whole, first + np.arange(len(first)), axis=0)]
    else:
        # The k-th update of every target in round k: the targets of one round are distinct.
        counts = np.diff(np.r_[first, len(ordered)])
        for number in range(int(counts.max())):
            more = counts > number
            index = order[first[more] + number]
            combined = folder.combine(
                [array[more] for array in present], [update[index] for update in wide]
            )
            for array, value in zip(present, combined):
                array[more] = value
    for result, value in zip(results, folder.narrow(present)):
        result[places] = value
    return results
