"""Checking a graph: structure, sizes, and every shape against the operator table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from graph_compiler.hlo.arguments import module_argument
from graph_compiler.hlo.graph import Computation, Instruction, Module
from graph_compiler.hlo.order import callees_first, operands_first
from graph_compiler.hlo.proto import MALFORMED
from graph_compiler.hlo.types import MAX_VALUE_BYTES, Shape
from isa.errors import NeuronError
from nki.errors import named_arguments

MAX_RANK = 32
"""Dimensions that a value may have; NumPy's own limit is 64, and windows double the dimensions."""


@named_arguments
def verify(module: Module) -> None:
    """Check a graph.

    Raises NeuronError, with the instruction's name and its line in the model's source where known:
    hlo-invalid, hlo-cycle, hlo-unknown-opcode, hlo-not-supported, hlo-too-large, hlo-shape-mismatch
    and hlo-type-mismatch. Invalid are names and ids that come twice, values of other computations,
    parameters with gaps, calls out of the module, aliases of what is not there, and incomplete
    attributes.

    Source of the rules of shapes: https://openxla.org/xla/operation_semantics

    >>> from graph_compiler import parse_text
    >>> text = "HloModule m\\nENTRY e {\\n x = f32[2] parameter(0)\\n ROOT y = f32[3] negate(x)\\n}"
    >>> verify(parse_text(text))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    isa.errors.NeuronError: ...negate `y` says f32[3]; operands and attributes give f32[2]...
    """
    for error in findings(module):
        raise error


def findings(module: Module) -> Iterator[NeuronError]:
    """Everything that is wrong with a graph, as errors that `verify` would raise.

    First names, ids, uses, calls and aliases; only where these are in order, the meaning of every
    instruction.
    """
    module_argument(module, "verify")
    broken = False
    for check, argument in (
        (_check_computations, module),
        *((_check_structure, computation) for computation in module.computations),
        (callees_first, module),
        (_check_aliases, module),
    ):
        try:
            check(argument)  # type: ignore[operator]
        except NeuronError as error:
            broken = True
            yield error
    if broken:
        return
    for instruction in module.instructions():
        try:
            _check_meaning(instruction)
        except NeuronError as error:
            yield _located(error, module, instruction)


def _located(error: NeuronError, module: Module, instruction: Instruction) -> NeuronError:
    """The error with the model's source line among its notes, where only the module knows it."""
    line = "" if instruction.source else module.source_of(instruction)
    if not line:
        return error
    return NeuronError(
        error.code,
        error.what,
        error.why,
        error.hint,
        error.location,
        (*error.notes, f"from {line}"),
    )


def _twice(names: Iterable[Any]) -> Any | None:
    """The first value that occurs a second time."""
    seen: set[Any] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _check_computations(module: Module) -> None:
    known = {id(computation) for computation in module.computations}
    if id(module.entry) not in known:
        raise NeuronError("hlo-invalid", "The entry computation is not in the module.")
    if (name := _twice(item.name for item in module.computations)) is not None:
        raise NeuronError("hlo-invalid", f"Two computations are named {name!r}.")
    if (number := _twice(item.id for item in module.computations if item.id)) is not None:
        raise NeuronError("hlo-invalid", f"Two computations have the id {number}.")
    for instruction in module.instructions():
        for called in instruction.called:
            if id(called) not in known:
                raise NeuronError(
                    "hlo-invalid",
                    f"{_named(instruction)} calls {called.name!r}, which is not in the module.",
                )


def _named(instruction: Instruction) -> str:
    source = f" ({instruction.source})" if instruction.source else ""
    return f"{instruction.opcode} `{instruction.name}`{source}"


def _check_structure(computation: Computation) -> None:
    own = {id(item) for item in computation.instructions}
    where = f"the computation {computation.name!r}"
    if len(own) != len(computation.instructions):
        raise NeuronError("hlo-invalid", f"An instruction stands twice in {where}.")
    if id(computation.root) not in own:
        raise NeuronError("hlo-invalid", f"The root of {where} is not in it.")
    if (name := _twice(item.name for item in computation.instructions)) is not None:
        raise NeuronError("hlo-invalid", f"Two instructions of {where} are named {name!r}.")
    if (number := _twice(item.id for item in computation.instructions if item.id)) is not None:
        raise NeuronError("hlo-invalid", f"Two instructions of {where} have the id {number}.")
    for instruction in computation.instructions:
        for needed in (*instruction.operands, *instruction.control_predecessors):
            if id(needed) not in own:
                raise NeuronError(
                    "hlo-invalid",
                    f"{_named(instruction)} in {where} uses {needed.name!r} of another "
                    "computation.",
                )
    if operands_first(computation) != computation.instructions:
        raise NeuronError("hlo-invalid", f"In {where}, an operand stands behind its user.")
    numbers = [item.parameter_number for item in computation.parameters]
    if numbers != list(range(len(numbers))):
        raise NeuronError("hlo-invalid", f"The parameters of {where} are numbered {numbers}.")


def _part(shape: Shape, index: Iterable[int]) -> Shape | None:
    """The component of a shape that an index of a tuple names; None where there is none."""
    for position in index:
        if not 0 <= position < len(shape.tuple_shapes):
            return None
        shape = shape.tuple_shapes[position]
    return shape


def _check_aliases(module: Module) -> None:
    """Outputs that reuse the memory of parameters must be there, and so must the parameters."""
    record = module.attributes.get("input_output_alias")
    parameters = module.parameters
    for entry in () if record is None else record.entries:
        output = _part(module.result_shape, entry.output_shape_index)
        known = 0 <= entry.parameter_number < len(parameters)
        given = (
            _part(parameters[entry.parameter_number].shape, entry.parameter_shape_index)
            if known
            else None
        )
        if output is None or given is None or output.bytes != given.bytes:
            raise NeuronError(
                "hlo-invalid",
                f"Output {tuple(entry.output_shape_index)} ({output}) of the module is to take "
                f"the memory of parameter {entry.parameter_number} "
                f"{tuple(entry.parameter_shape_index)} ({given}).",
                why="Aliases name an output and a parameter of the entry computation, of one size.",
            )


def check_size(shape: Shape, owner: str) -> None:
    """Dimensions must be sizes, and a value small enough. Raises NeuronError."""
    for inner in shape.tuple_shapes:
        check_size(inner, owner)
    if shape.element_type == "invalid":
        raise NeuronError("hlo-invalid", f"{owner} has a shape without an element type.")
    if any(shape.dynamic_dimensions):
        raise NeuronError(
            "hlo-not-supported",
            f"{owner} has dynamic dimensions: {shape}.",
            why="Every size is known when a graph is compiled (NCC_EMOD025).",
        )
    if any(size < 0 for size in shape.dimensions):
        raise NeuronError("hlo-invalid", f"{owner} has a negative dimension: {shape}.")
    if shape.dimensions and not shape.is_array:
        raise NeuronError("hlo-invalid", f"{owner} has dimensions but no elements: {shape}.")
    if shape.layout and sorted(shape.layout) != list(range(shape.rank)):
        raise NeuronError("hlo-invalid", f"{owner} has a layout that is no permutation: {shape}.")
    if shape.rank > MAX_RANK:
        raise NeuronError("hlo-too-large", f"{owner} has {shape.rank} dimensions.")
    # As if dimensions of size 0 had an element: the others stand in strides and loops.
    extent = math.prod(size or 1 for size in shape.dimensions) * ((shape.primitive.bits + 7) // 8)
    if extent >= MAX_VALUE_BYTES:
        raise NeuronError("hlo-too-large", f"{owner} has {extent} bytes: {shape}.")


_WITH_LITERAL = frozenset({"constant"})
"""Opcodes that are nothing without their elements."""


def _check_literal(instruction: Instruction, owner: str) -> None:
    if instruction.opcode not in _WITH_LITERAL:
        return
    literal = instruction.attributes.get("literal")
    if literal is None:
        raise NeuronError(
            "hlo-invalid",
            f"{owner} has no elements.",
            hint="Write the graph with its large constants.",
        )
    if not _fits(literal, instruction.shape):
        raise NeuronError(
            "hlo-shape-mismatch",
            f"The elements of {owner} are not those of {instruction.shape.plain()}.",
        )


def _fits(literal: Any, shape: Shape) -> bool:
    if shape.is_tuple:
        return len(literal) == len(shape.tuple_shapes) and all(
            _fits(part, of) for part, of in zip(literal, shape.tuple_shapes)
        )
    if not shape.is_array:
        return True
    return bool(literal.shape == shape.dimensions and literal.dtype == shape.numpy_dtype())


def _check_meaning(instruction: Instruction) -> None:
    from graph_compiler.hlo.operators import operator
    from graph_compiler.hlo.operators.row import check_counts

    owner = _named(instruction)
    check_size(instruction.shape, owner)
    row = operator(instruction.opcode, owner)
    check_counts(instruction, row)
    _check_literal(instruction, owner)
    try:
        inferred = row.infer(instruction)
    except MALFORMED as error:
        raise NeuronError(
            "hlo-invalid", f"The attributes of {owner} are incomplete or out of range: {error}"
        ) from None
    if inferred.same_as(instruction.shape):
        return
    code = "hlo-shape-mismatch"
    if inferred.dimensions == instruction.shape.dimensions and not inferred.is_tuple:
        code = "hlo-type-mismatch"
    raise NeuronError(
        code,
        f"{owner} says {instruction.shape.plain()}; operands and attributes give "
        f"{inferred.plain()}.",
    )
