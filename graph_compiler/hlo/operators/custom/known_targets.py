"""Custom calls: operations named by a target, by registry.

A meaning is a function of (instruction, operands, context), entered under its target. Targets that
no meaning is known of are refused when they run, so that a graph with them can still be read.
Names with `AwsNeuron` are those that the Neuron front-ends emit (SDK error page NCC_EVRF015).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graph_compiler.hlo.operators.custom.unknown_targets import unknown_target
from graph_compiler.hlo.operators.elementwise.transcendental import Erf, Logistic
from graph_compiler.hlo.operators.numerics import precise
from graph_compiler.hlo.operators.row import (
    Array,
    Evaluation,
    HloOperator,
    require_shape,
    shape_error,
    subject,
)
from graph_compiler.hlo.operators.sorting import stable_order
from graph_compiler.hlo.proto import MALFORMED
from isa.errors import NeuronError

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.hlo.types import Shape

Meaning: TypeAlias = "Callable[[Instruction, list[Any], Evaluation], Any]"

CUSTOM_CALLS: dict[str, Meaning] = {}
"""Meanings by target."""

IDENTITIES = (
    "Sharding",
    "AwsNeuronTransferWithStaticRing",
    "AwsNeuronLNCShardingConstraint",
    "AwsNeuronModuleMarkerStart-Forward",
    "AwsNeuronModuleMarkerEnd-Forward",
    "AwsNeuronModuleMarkerStart-Backward",
    "AwsNeuronModuleMarkerEnd-Backward",
    "NeuronBoundaryMarker-Start",
    "NeuronBoundaryMarker-End",
)
"""Targets that mark something and give their operands back."""


def meaning(*targets: str) -> Callable[[Meaning], Meaning]:
    """Enters a function under targets."""

    def enter(function: Meaning) -> Meaning:
        for target in targets:
            CUSTOM_CALLS[target] = function
        return function

    return enter


class CustomCall(HloOperator):
    """An operation that its target names; see `CUSTOM_CALLS`."""

    opcode = "custom-call"
    builders = ("Customcall", "CustomCall")
    stablehlo = "custom_call"
    attributes = ("custom_call_target", "backend_config", "output_operand_aliasing")
    calls = (0, None)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        if instruction.attribute("custom_call_target") in IDENTITIES:
            shapes = [operand.shape for operand in instruction.operands]
            parts = instruction.shape.tuple_shapes or (instruction.shape,)
            require_shape(
                len(parts) == len(shapes) and all(a.same_as(b) for a, b in zip(parts, shapes)),
                instruction,
                f"it gives {instruction.shape} of ({', '.join(map(str, shapes))}).",
                "The target gives its operands back.",
            )
        return instruction.shape

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        target = instruction.attribute("custom_call_target")
        given, known = context.custom_calls.get(target), CUSTOM_CALLS.get(target)
        function = given or (known and partial(_own, known))
        if function is None:
            raise unknown_target(
                subject(instruction), target, [*CUSTOM_CALLS, *context.custom_calls]
            )
        value = function(instruction, operands, context)
        if not _is_of(instruction.shape, value):
            raise shape_error(
                instruction,
                f"what {target!r} stands for gives {_described(value)}; the graph states "
                f"{instruction.shape.plain()}.",
                "A custom call gives arrays of the dimensions and types that the graph states.",
            )
        return value


def _own(known: Meaning, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
    """What a target of `CUSTOM_CALLS` gives; graphs may call one with any operands."""
    try:
        return known(instruction, operands, context)
    except NeuronError:
        raise
    except MALFORMED as error:
        shapes = ", ".join(str(operand.shape.plain()) for operand in instruction.operands)
        raise NeuronError(
            "hlo-invalid",
            f"{subject(instruction)}: the target takes no ({shapes}) for "
            f"{instruction.shape.plain()} ({error}).",
        ) from error


def _is_of(shape: Shape, value: Any) -> bool:
    """Whether a value has the dimensions and element types of a shape; tokens may be anything."""
    if shape.is_tuple:
        parts = shape.tuple_shapes
        return (
            isinstance(value, tuple) and len(value) == len(parts) and all(map(_is_of, parts, value))
        )
    if not shape.is_array:
        return True
    array = np.asarray(value)
    return array.shape == shape.dimensions and array.dtype == shape.numpy_dtype()


def _described(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_described, value))})"
    array = np.asarray(value)
    return f"{array.dtype}{list(array.shape)}"


@meaning(*IDENTITIES)
def _identity(instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
    return tuple(operands) if instruction.shape.is_tuple else operands[0]


@meaning("AwsNeuronErf")
def _erf(instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
    """The error function of every element."""
    return Erf.function(operands[0])


@meaning("AwsNeuronGelu")
def _gelu(instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
    """x (1 + erf(x / sqrt(2))) / 2."""
    return precise(lambda x: x * 0.5 * (1 + Erf.formula(x / math.sqrt(2))), operands[0])


@meaning("AwsNeuronGeluApprxTanh")
def _gelu_tanh(instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
    """x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2."""
    slope = math.sqrt(2 / math.pi)
    return precise(lambda x: x * 0.5 * (1 + np.tanh(slope * (x + 0.044715 * x**3))), operands[0])


@meaning("AwsNeuronSilu")
def _silu(instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
    """x / (1 + exp(-x))."""
    return precise(lambda x: x * Logistic.formula(x), operands[0])


def dimension_of(instruction: Instruction, rank: int) -> int:
    """The dimension that a call's configuration names, as transformers-neuronx writes it: a number
    from the first dimension on, or from behind the last one down. Raises NeuronError hlo-invalid.
    """
    config = instruction.attribute("backend_config")
    text = config.decode("utf-8", "replace") if isinstance(config, bytes) else str(config)
    try:
        axis = int(text)
    except ValueError:
        axis = rank
    if not -rank <= axis < rank:
        raise NeuronError(
            "hlo-invalid",
            f"{subject(instruction)}: its configuration {text[:40]!r} names no dimension.",
            why=f"It is the number of one of the operand's {rank} dimensions.",
        )
    return axis % rank


@meaning("AwsNeuronSoftmax")
def _softmax(instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
    """exp(x - max(x)) / sum(exp(x - max(x))) along the dimension that the configuration names."""
    axis = dimension_of(instruction, operands[0].ndim)

    def formula(x: Array) -> Array:
        powers = np.exp(x - x.max(axis=axis, keepdims=True))
        return powers / powers.sum(axis=axis, keepdims=True)

    return precise(formula, operands[0])


@meaning("AwsNeuronRmsNorm")
def _rms_norm(instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
    """x w / sqrt(mean(x^2) + epsilon) of (x, w, epsilon), the mean along the dimension that the
    configuration names, w along the same."""
    x, weight, epsilon = (operand.astype(np.float64) for operand in operands)
    axis = dimension_of(instruction, x.ndim)
    sizes = [x.shape[axis] if place == axis else 1 for place in range(x.ndim)]
    mean = (x * x).mean(axis=axis, keepdims=True)
    found = x / np.sqrt(mean + epsilon.reshape(())) * weight.reshape(sizes)
    return found.astype(instruction.shape.numpy_dtype())


@meaning("AwsNeuronArgMax")
def _arg_max(instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
    """Where the first largest element is along the dimension that the configuration names; a NaN is
    more than any number."""
    axis = dimension_of(instruction, operands[0].ndim)
    return operands[0].astype(np.float64).argmax(axis).astype(instruction.shape.numpy_dtype())


@meaning("AwsNeuronArgMin")
def _arg_min(instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
    """Where the first smallest element is along the dimension that the configuration names; a NaN
    is less than any number."""
    axis = dimension_of(instruction, operands[0].ndim)
    return operands[0].astype(np.float64).argmin(axis).astype(instruction.shape.numpy_dtype())


@meaning("AwsNeuronTopK")
def _top_k(instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
    """The k largest of the last dimension; k is the size in the result's shape."""
    values, indices = instruction.shape.tuple_shapes
    order = stable_order(operands[0].astype(np.float64), descending=True)
    order = order[..., : values.dimensions[-1]]
    taken = np.take_along_axis(operands[0], order, axis=-1)
    return taken, order.astype(indices.numpy_dtype())
