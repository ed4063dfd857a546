"""Operations that fold many elements into one with a computation: reduce, windows, scan, map."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.hlo.operators.folding import Folder
from graph_compiler.hlo.operators.indexing import scatter_values
from graph_compiler.hlo.operators.row import (
    Array,
    CalledWork,
    Evaluation,
    HloOperator,
    Work,
    check_axes,
    check_scalar_computation,
    operand_array,
    packed,
    require_shape,
    require_type,
    shape_error,
    subject,
    tuple_or_one,
)
from graph_compiler.hlo.operators.slicing import pad
from isa.errors import NeuronError

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.hlo.types import Shape


def _inputs_and_initials(instruction: Instruction) -> list[Shape]:
    """Checks N inputs followed by N scalars; the shapes of the inputs."""
    count = len(instruction.operands)
    require_shape(
        count % 2 == 0 and count > 0,
        instruction,
        f"it has {count} operands.",
        "N inputs are followed by N initial values.",
    )
    half = count // 2
    shapes = [operand_array(instruction, i) for i in range(half)]
    for position, shape in enumerate(shapes):
        initial = operand_array(instruction, half + position)
        require_shape(
            shape.dimensions == shapes[0].dimensions and initial.is_scalar,
            instruction,
            f"input {position} is {shape}, its initial value {initial}, input 0 {shapes[0]}.",
            "Inputs have the same dimensions, and initial values are scalars.",
        )
        require_type(
            shape.element_type == initial.element_type,
            instruction,
            f"input {position} is {shape}, its initial value {initial}.",
            "An initial value has the element type of its input.",
        )
    types = [shape.element_type for shape in shapes]
    check_scalar_computation(instruction, instruction.called[0], types * 2, half, folds=True)
    return shapes


def _results(instruction: Instruction, shapes: list[Shape], dimensions: Any) -> Shape:
    """Arrays of `dimensions` with the element types that the computation returns."""
    sizes = tuple(dimensions)
    root = instruction.called[0].root.shape
    roots = root.tuple_shapes if root.is_tuple else (root,)
    return tuple_or_one(
        [
            shape.with_dimensions(sizes).with_element_type(part.element_type)
            for shape, part in zip(shapes, roots)
        ]
    )


def _first(shape: Shape) -> Shape:
    """The shape of the first of N results."""
    return shape.tuple_shapes[0] if shape.is_tuple else shape


class Reduce(HloOperator):
    """Folds the elements along `dimensions` with the called computation.

    Operands are N arrays and N initial values; the computation takes N values that came first and
    N that come later. The order is left open; an initial value comes first.
    """

    opcode = "reduce"
    builders = ("Reduce",)
    stablehlo = "reduce"
    attributes = ("dimensions",)
    arity = (2, None)
    calls = (1, 1)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shapes = _inputs_and_initials(instruction)
        axes = instruction.attribute("dimensions")
        check_axes(instruction, axes, shapes[0].rank, "`dimensions`")
        kept = [size for axis, size in enumerate(shapes[0].dimensions) if axis not in axes]
        return _results(instruction, shapes, kept)

    @classmethod
    def work(cls, instruction: Instruction, called: CalledWork) -> Work:
        results = _first(instruction.shape).size
        count = instruction.operands[0].shape.size - results
        return called(instruction.called[0]).times(max(0, count))

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        half = len(operands) // 2
        inputs, initials = operands[:half], operands[half:]
        axes = sorted(instruction.attribute("dimensions"))
        kept = [axis for axis in range(inputs[0].ndim) if axis not in axes]
        shape = [inputs[0].shape[axis] for axis in kept]
        folded = math.prod(inputs[0].shape[axis] for axis in axes)
        flat = [array.transpose(kept + axes).reshape([*shape, folded]) for array in inputs]
        return packed(Folder(instruction.called[0], context).reduce(flat, initials))


def window_sizes(instruction: Instruction, shape: Shape) -> list[int]:
    """Number of positions of the instruction's window along every dimension."""
    window = instruction.attribute("window")
    parts = () if window is None else window.dimensions
    require_shape(
        len(parts) == shape.rank,
        instruction,
        f"its window has {len(parts)} dimensions for {shape}.",
        "A window has the dimensions of its operand.",
    )
    sizes = []
    for axis, (part, size) in enumerate(zip(parts, shape.dimensions)):
        sizes.append(positions(instruction, axis, part, size))
    return sizes


def positions(instruction: Instruction, axis: int, part: Any, size: int) -> int:
    """Number of positions of one dimension of a window on `size` elements."""
    base, dilation = part.base_dilation or 1, part.window_dilation or 1
    require_shape(
        part.size > 0 and part.stride > 0 and base > 0 and dilation > 0,
        instruction,
        f"dimension {axis} of its window has size {part.size}, stride {part.stride}.",
        "Sizes, strides and dilations of a window are positive.",
    )
    dilated = 0 if size == 0 else (size - 1) * base + 1
    padded = part.padding_low + dilated + part.padding_high
    if padded < 0:
        raise shape_error(
            instruction,
            f"dimension {axis} of {size} is padded to {padded}.",
            "Padding leaves sizes of at least 0.",
        )
    reach = (part.size - 1) * dilation + 1
    return 0 if padded == 0 or reach > padded else (padded - reach) // part.stride + 1


class ReduceWindow(HloOperator):
    """Folds the elements of every position of a window with the called computation.

    The operand is first dilated and padded with the initial value.
    """

    opcode = "reduce-window"
    builders = ("ReduceWindow",)
    stablehlo = "reduce_window"
    attributes = ("window",)
    arity = (2, None)
    calls = (1, 1)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shapes = _inputs_and_initials(instruction)
        return _results(instruction, shapes, window_sizes(instruction, shapes[0]))

    @classmethod
    def work(cls, instruction: Instruction, called: CalledWork) -> Work:
        elements = math.prod(part.size for part in instruction.attribute("window").dimensions)
        count = _first(instruction.shape).size * (elements - 1)
        return called(instruction.called[0]).times(count)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        half = len(operands) // 2
        folder = Folder(instruction.called[0], context)
        dimensions = _first(instruction.shape).dimensions
        if 0 in dimensions:
            return packed([np.empty(dimensions, dtype) for dtype in folder.dtypes])
        parts = instruction.attribute("window").dimensions
        edges = [(p.padding_low, p.padding_high, (p.base_dilation or 1) - 1) for p in parts]
        initials = folder.widen(operands[half:])
        arrays = [
            pad(array, initial, edges)
            for array, initial in zip(folder.widen(operands[:half]), initials)
        ]
        for axis in reversed(range(len(parts))):  # keeps the row-major order of a window
            part = parts[axis]
            if part.size > 1:
                arrays = folder.windows(arrays, axis, part.size, part.window_dilation or 1)
            index: list[Any] = [slice(None)] * len(parts)
            index[axis] = slice(0, (dimensions[axis] - 1) * part.stride + 1, part.stride)
            arrays = [array[tuple(index)] for array in arrays]
        whole = [np.broadcast_to(initial, dimensions) for initial in initials]
        return packed(folder.narrow(folder.combine(whole, arrays)))


_WINDOW_LIMIT = 1 << 22
"""Elements of a window that are gone through one after another."""


class SelectAndScatter(HloOperator):
    """Adds each element of the source where the window found the element that `select` prefers.

    Operands (operand, source, initial value); computations (select, scatter). `select(a, b)` of an
    earlier and a later element is True where the earlier one stays. Padding is never selected.
    """

    opcode = "select-and-scatter"
    builders = ("SelectAndScatter",)
    stablehlo = "select_and_scatter"
    attributes = ("window",)
    arity = (3, 3)
    calls = (2, 2)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape, source, initial = (operand_array(instruction, i) for i in range(3))
        require_type(
            shape.element_type == source.element_type == initial.element_type,
            instruction,
            f"its operands are {shape}, {source} and {initial}.",
            "All three have the same element type.",
        )
        sizes = tuple(window_sizes(instruction, shape))
        require_shape(
            source.dimensions == sizes and initial.is_scalar,
            instruction,
            f"its source is {source}, its initial value {initial}; the window has {list(sizes)}"
            " positions.",
            "The source has an element for every position, and the initial value is a scalar.",
        )
        types = [shape.element_type] * 2
        select, combine = instruction.called
        check_scalar_computation(instruction, select, types, 1, decides=True)
        check_scalar_computation(instruction, combine, types, 1, folds=True)
        return shape

    @classmethod
    def work(cls, instruction: Instruction, called: CalledWork) -> Work:
        select, scatter = (called(computation) for computation in instruction.called)
        elements = math.prod(part.size for part in instruction.attribute("window").dimensions)
        return (select.times(elements - 1) + scatter).times(instruction.operands[1].shape.size)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        array, source, initial = operands
        select, combine = instruction.called
        parts = instruction.attribute("window").dimensions
        if math.prod(part.size for part in parts) > _WINDOW_LIMIT:
            raise NeuronError(
                "hlo-too-large",
                f"{subject(instruction)}: its window has more than {_WINDOW_LIMIT} elements.",
            )
        best: Array | None = None
        found = np.full(source.shape, -1, np.int64)
        for offset in np.ndindex(*(part.size for part in parts)):
            flat = np.zeros(source.shape, np.int64)
            inside = np.ones(source.shape, bool)
            for axis, (part, step) in enumerate(zip(parts, offset)):
                index = np.arange(source.shape[axis]) * part.stride + step - part.padding_low
                column = index.reshape([-1 if i == axis else 1 for i in range(array.ndim)])
                inside = inside & (column >= 0) & (column < array.shape[axis])
                flat = flat * array.shape[axis] + column
            values = array.reshape(-1)[np.where(inside, flat, 0)]
            if best is None:
                best, found = values, np.where(inside, flat, -1)
                continue
            stays = np.asarray(context.elementwise(select, [best, values])[0]) & (found >= 0)
            takes = inside & ~stays
            best, found = np.where(takes, values, best), np.where(takes, flat, found)
        result = np.full(array.shape, initial, array.dtype)
        targets = found.reshape(-1)
        kept = targets >= 0
        scattered = scatter_values(
            [result.reshape(-1)],
            targets[kept],
            [source.reshape(-1)[kept]],
            Folder(combine, context),
        )
        return scattered[0].reshape(array.shape)


class Map(HloOperator):
    """The called computation of scalars, applied to every element."""

    opcode = "map"
    builders = ("Map",)
    stablehlo = "map"
    attributes = ("dimensions",)
    arity = (1, None)
    calls = (1, 1)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shapes = [operand_array(instruction, i) for i in range(len(instruction.operands))]
        for position, shape in enumerate(shapes):
            require_shape(
                shape.dimensions == shapes[0].dimensions,
                instruction,
                f"operand {position} is {shape}, operand 0 is {shapes[0]}.",
                "All operands have the same dimensions.",
            )
        computation = instruction.called[0]
        types = [shape.element_type for shape in shapes]
        check_scalar_computation(instruction, computation, types, 1)
        return shapes[0].with_element_type(computation.root.shape.element_type)

    @classmethod
    def work(cls, instruction: Instruction, called: CalledWork) -> Work:
        return called(instruction.called[0]).times(instruction.shape.size)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        result = context.elementwise(instruction.called[0], operands)[0]
        return np.broadcast_to(result, operands[0].shape)


class Scan(HloOperator):
    """Runs a computation over the slices along a dimension, handing carries on.

    Operands are N inputs and the carries; the computation takes a slice of each input and the
    carries, and gives a slice of each output and the carries. The result is the outputs, stacked
    along the dimension, and the last carries.
    """

    opcode = "scan"
    stablehlo = "chlo.scan"
    attributes = ("dimensions", "num_carries", "is_reverse")
    arity = (1, None)
    calls = (1, 1)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        from graph_compiler.hlo.types import Shape

        axis, carries = _scan_form(instruction)
        shapes = [operand_array(instruction, i) for i in range(len(instruction.operands))]
        inputs = shapes[: len(shapes) - carries]
        length = inputs[0].dimensions[axis]
        computation = instruction.called[0]
        found = [parameter.shape.plain() for parameter in computation.parameters]
        wanted = [_without(shape, axis) for shape in inputs]
        wanted += [shape.plain() for shape in shapes[len(inputs) :]]
        require_shape(
            found == wanted and all(shape.dimensions[axis] == length for shape in inputs),
            instruction,
            f"computation `{computation.name}` takes ({', '.join(map(str, found))}).",
            f"It must take ({', '.join(map(str, wanted))}), and inputs are equally long.",
        )
        root = computation.root.shape
        roots = root.tuple_shapes if root.is_tuple else (root,)
        outputs = roots[: len(roots) - carries]
        stacked = [
            shape.with_dimensions([*shape.dimensions[:axis], length, *shape.dimensions[axis:]])
            for shape in outputs
        ]
        return Shape.tuple_of([*stacked, *roots[len(outputs) :]])

    @classmethod
    def work(cls, instruction: Instruction, called: CalledWork) -> Work:
        axis, _ = _scan_form(instruction)
        return called(instruction.called[0]).times(instruction.operands[0].shape.dimensions[axis])

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        axis, number = _scan_form(instruction)
        computation = instruction.called[0]
        inputs, carries = operands[: len(operands) - number], operands[len(operands) - number :]
        length = inputs[0].shape[axis]
        order = (
            range(length - 1, -1, -1) if instruction.attributes.get("is_reverse") else range(length)
        )
        shapes = instruction.shape.tuple_shapes[: len(instruction.shape.tuple_shapes) - number]
        outputs = [np.empty(shape.dimensions, shape.numpy_dtype()) for shape in shapes]
        for position in order:
            slices = [array.take(position, axis=axis) for array in inputs]
            results = context.call(computation, [*slices, *carries])
            results = results if isinstance(results, tuple) else (results,)
            for output, result in zip(outputs, results):
                np.moveaxis(output, axis, 0)[position] = result
            carries = list(results[len(outputs) :])
        return (*outputs, *carries)


def _scan_form(instruction: Instruction) -> tuple[int, int]:
    """The dimension and the number of carries. Raises NeuronError hlo-shape-mismatch."""
    axes = instruction.attribute("dimensions")
    carries = instruction.attribute("num_carries")
    rank = instruction.operands[0].shape.rank
    require_shape(
        len(axes) == 1 and 0 <= axes[0] < rank and 0 <= carries < len(instruction.operands),
        instruction,
        f"it scans dimension {tuple(axes)} with {carries} carries.",
        "A scan has one dimension, which every input has, and at least one input.",
    )
    return axes[0], carries


def _without(shape: Shape, axis: int) -> Shape:
    sizes = [size for i, size in enumerate(shape.dimensions) if i != axis]
    return shape.with_dimensions(sizes)
