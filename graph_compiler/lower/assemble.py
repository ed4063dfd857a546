"""A graph as one kernel: its steps, scheduled for a device, emitted one after another."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graph_compiler.admission import is_known_target
from graph_compiler.documented import refusal
from graph_compiler.evaluate import CALLS
from graph_compiler.hlo.operators import OPERATORS
from graph_compiler.hlo.operators.custom import IDENTITIES
from graph_compiler.hlo.operators.row import subject
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.lower.aliases import take_over
from graph_compiler.lower.control.counted import dynamic_slice, dynamic_update_slice, reads_of
from graph_compiler.lower.control.flow import NotOnChip, When, emit
from graph_compiler.lower.control.layers import LAYERS, families
from graph_compiler.lower.control.loops import apart, layers, while_loop
from graph_compiler.lower.cores.cores import shared_out
from graph_compiler.lower.cores.homes import Settled
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.draws import rng
from graph_compiler.lower.expansions import collectives, convolutions, empties, expansions, linear
from graph_compiler.lower.expansions.bits import other_width
from graph_compiler.lower.expansions.computations import map_elements, reduce_windows, scan
from graph_compiler.lower.expansions.custom_calls import called, top_k
from graph_compiler.lower.expansions.extremes import places_of_extremes
from graph_compiler.lower.expansions.gathers import of_columns, of_elements
from graph_compiler.lower.expansions.single_blocks import one_block, with_numbers
from graph_compiler.lower.expansions.windows import long_windows, select_and_scatter, short_windows
from graph_compiler.lower.in_turns import TakeTurns
from graph_compiler.lower.kernels import native_kernel
from graph_compiler.lower.limits import PlanLimits
from graph_compiler.lower.movement import affine_places, known_places
from graph_compiler.lower.movement.cumulative import cumulative
from graph_compiler.lower.movement.narrow_sorts import narrow_sort
from graph_compiler.lower.nests.arithmetic import FORMS, tile_attribute, tile_operands
from graph_compiler.lower.notes import LoweringNotes
from graph_compiler.lower.places import graph_location
from graph_compiler.lower.products.convolution import convolution
from graph_compiler.lower.products.patch_products import product_of_patches
from graph_compiler.lower.products.product import DEVICE_PRODUCTS
from graph_compiler.lower.rewrites.pairs import OPCODES
from graph_compiler.lower.rewritten import RewrittenGraph, rewritten_graph
from graph_compiler.lower.sizes import BIT_FOR_BIT, DTYPES, widens
from graph_compiler.options import GraphOptions
from graph_compiler.schedule import contractions, ordering, placement, reductions
from graph_compiler.schedule.fusion import (
    ElementExpression,
    Lazy,
    Literal,
    is_whole,
    materialised,
    rewritten,
    store,
)
from graph_compiler.schedule.schedule import Scheduler
from graph_compiler.schedule.simplify import STRUCTURAL
from graph_compiler.schedule.steps import Machine, place_of
from graph_compiler.schedule.views import MOVES, View
from isa.errors import NeuronError
from nki.ir.nodes import While, walk

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Module
    from graph_compiler.kernels import Kernels
    from graph_compiler.schedule.nodes import Node
    from isa.target import Target
    from nki.ir.nodes import TracedKernel


def _conditional(scheduler: Scheduler, node: Node) -> Any:
    device: Any = scheduler.program
    choice, *operands = node.operands
    views = [scheduler.view(operand) for operand in operands]
    results = [device.buffer(*form) for form in node.results]
    index = scheduler.value(choice)
    taken = 0
    last = len(node.blocks) - 1
    for number, block in enumerate(node.blocks):
        flag: Lazy
        if index.type == "pred":
            flag = index if number == 0 else ElementExpression("not", "pred", None, [index])
        elif number < last:
            flag = ElementExpression(
                "compare", "pred", "EQ", [index, Literal(index.type, (), number)]
            )
        else:  # the last one, and whatever is outside
            below = ElementExpression("compare", "pred", "LT", [index, Literal(index.type, (), 0)])
            above = ElementExpression(
                "compare", "pred", "GE", [index, Literal(index.type, (), last)]
            )
            flag = ElementExpression("or", "pred", None, [below, above])
        place = place_of(materialised(device, flag))
        arguments = views[taken : taken + len(block.parameters)]
        taken += len(block.parameters)

        def branch(block: Any = block, arguments: Any = arguments) -> None:
            values = Scheduler(device, scheduler.simplifier, block, arguments).run()
            for value, target in zip(values, results):
                store(device, value, target)

        steps, _ = apart(device, branch)
        device.steps.append(When(place, steps))
    return results[0] if len(results) == 1 else results


def _refused(scheduler: Scheduler, node: Node) -> Any:
    item = node.instruction
    assert item is not None
    types = ", ".join(dict.fromkeys(operand.type for operand in node.operands)) or node.type
    raise NeuronError(
        "hlo-not-compiled",
        f"{subject(item)} of {types}",
        hint="graph_compiler.execute runs it on the host.",
    )


def _dot(scheduler: Scheduler, node: Node) -> Any:
    """A dot; without a sum, element-wise work."""
    item = node.instruction
    assert item is not None
    numbers = item.attribute("dot_dimension_numbers")
    left, right = node.operands
    depth = math.prod(left.dims[axis] for axis in numbers.lhs_contracting_dimensions)
    real = all(PRIMITIVE_TYPES[one.type].is_float for one in (left, right, node))
    if depth != 1 or not real:
        found = product_of_patches(scheduler, node)
        return contractions.dot(scheduler, node) if found is None else found
    sides = (
        (left, numbers.lhs_batch_dimensions, numbers.lhs_contracting_dimensions),
        (right, numbers.rhs_batch_dimensions, numbers.rhs_contracting_dimensions),
    )
    batch = len(numbers.lhs_batch_dimensions)
    place = batch
    factors = []
    for operand, shared, gone in sides:
        free = [axis for axis in range(len(operand.dims)) if axis not in (*shared, *gone)]
        axes = dict(enumerate(shared)) | {place + i: axis for i, axis in enumerate(free)}
        place += len(free)

        def spread(view: View, axes: dict[int, int] = axes) -> View:
            strides = tuple(
                view.strides[axes[i]] if i in axes else 0 for i in range(len(node.dims))
            )
            return view.placed(node.dims, strides)

        value = rewritten(scheduler.value(operand), spread, node.dims)
        assert value is not None
        factors.append(contractions.converted(value, "f32"))
    product = ElementExpression("multiply", "f32", None, factors)
    return contractions.converted(product, node.type)


def _iota(scheduler: Scheduler, node: Node) -> View:
    """Positions along a dimension, as a constant that repeats along the others."""
    assert node.instruction is not None
    axis = node.instruction.attribute("dimensions")[0]
    count = node.dims[axis]
    numbers = np.arange(count).astype(PRIMITIVE_TYPES[node.type].numpy)
    strides = tuple(int(place == axis) for place in range(len(node.dims)))
    return View(scheduler.program.constant(numbers), node.type, node.dims, strides)


def _custom_call(scheduler: Scheduler, node: Node) -> Any:
    """Marks give their operands back. Raises documented-refusal for targets that nobody knows."""
    item = node.instruction
    assert item is not None
    target = item.attribute("custom_call_target")
    if not is_known_target(target):
        raise refusal("EHCA005", f"{subject(item)}: the target {target!r} is not known.")
    if target not in IDENTITIES:
        return None
    values = [scheduler.value(operand) for operand in node.operands]
    return values if item.shape.is_tuple and len(values) > 1 else values[0]


def _from_ascending(
    handle: Callable[[Scheduler, Node], Any], every: bool = False
) -> Callable[[Scheduler, Node], Any]:
    """A handler whose first operand, or `every` one, is copied where its elements go down in
    memory: distances of blocks are counted from the first one up."""

    def handled(scheduler: Scheduler, node: Node) -> Any:
        for operand in node.operands if every else node.operands[:1]:
            view = scheduler.view(operand)
            if min(view.strides, default=0) < 0:
                copy = scheduler.program.buffer(view.type, view.dims)
                store(scheduler.program, view, copy)
                scheduler.values[operand] = copy
        return handle(scheduler, node)

    return handled


_HANDLERS: dict[str, Callable[[Scheduler, Node], Any]] = {
    "reduce": expansions.first_of(places_of_extremes, reductions.reduce_along),
    "reduce-window": expansions.first_of(
        cumulative,
        long_windows,
        short_windows,
        reductions.reduce_window,
        reduce_windows,
    ),
    "map": map_elements,
    "scan": scan,
    "bitcast-convert": other_width,
    "concatenate": placement.concatenate,
    "pad": placement.pad,
    "dynamic-slice": _from_ascending(dynamic_slice),
    "dynamic-update-slice": dynamic_update_slice,
    "gather": expansions.first_of(
        with_numbers,
        affine_places.gather,
        of_elements,
        known_places.gather,
        of_columns,
        _from_ascending(placement.gather),
    ),
    "scatter": expansions.first_of(one_block, with_numbers, ordering.scatter),
    "sort": expansions.first_of(narrow_sort, _from_ascending(ordering.sort, every=True)),
    "topk": ordering.top,
    "select-and-scatter": select_and_scatter,
    "iota": _iota,
    "custom-call": _custom_call,
    "dot": _dot,
    "convolution": expansions.first_of(
        expansions.handler(convolutions.few_results),
        convolution,
        expansions.handler(convolutions.convolution),
    ),
    "while": while_loop,
    LAYERS: layers,
    "conditional": _conditional,
    "rng": rng,
    **collectives.HANDLERS,
}
"""How to schedule opcodes that are not element-wise; None where a variant is not among them."""

_OTHERWISE = expansions.EXPANSIONS | linear.EXPANSIONS


def _handler(op: str) -> Callable[[Scheduler, Node], Any]:
    """The handler of an opcode, behind those for what has no elements and before one that makes
    other operations."""
    before, after = empties.EXPANSIONS.get(op), _OTHERWISE.get(op)
    return expansions.first_of(
        empties.nothing,
        *([expansions.handler(before)] if before else []),
        *filter(None, [_HANDLERS.get(op)]),
        *([expansions.handler(after)] if after else []),
    )


HANDLERS = {op: _handler(op) for op in _HANDLERS | _OTHERWISE}
"""How to schedule all opcodes that are not element-wise."""

_CUSTOM_CALL = "custom-call"
_MEANINGS = expansions.first_of(
    collectives.called_by_ranks, top_k, expansions.handler(called), HANDLERS[_CUSTOM_CALL]
)


def machine(kernels: Kernels, limits: PlanLimits) -> Machine:
    """A device whose graphs may call these kernels."""
    calls = expansions.first_of(native_kernel(kernels), _MEANINGS)
    handlers = HANDLERS | {_CUSTOM_CALL: calls}
    return Machine(
        tile_attribute, tile_operands, handlers, _refused, DEVICE_PRODUCTS, limits.repeats, widens
    )


def compiled_operators() -> list[str]:
    """The names, as XlaBuilder spells them, of the operators that have a form on the device."""
    opcodes = {*FORMS, *MOVES, *HANDLERS, *STRUCTURAL, *CALLS, *OPCODES}
    return sorted(
        {name for opcode in opcodes & OPERATORS.keys() for name in OPERATORS[opcode].builders}
    )


_PLAIN = GraphOptions()


def assemble(
    module: Module,
    target: Target,
    options: GraphOptions = _PLAIN,
    kernels: Kernels | None = None,
    limits: PlanLimits | None = None,
) -> TracedKernel:
    """The tile IR of a graph, with that of the kernels which it calls. `limits`: of what takes room
    on chip. Raises hlo-not-compiled for what has no form on the device, and hlo-unknown-kernel."""
    return assembled(module, target, options, kernels, limits).kernel


class Assembled(NamedTuple):
    """A kernel, and what is worth knowing of how it was made."""

    kernel: TracedKernel
    notes: LoweringNotes


def assembled(
    module: Module,
    target: Target,
    options: GraphOptions = _PLAIN,
    kernels: Kernels | None = None,
    limits: PlanLimits | None = None,
) -> Assembled:
    """The same with notes."""
    return planned(rewritten_graph(module, target, options), target, options, kernels, limits)


def planned(
    graph: RewrittenGraph,
    target: Target,
    options: GraphOptions,
    kernels: Kernels | None = None,
    limits: PlanLimits | None = None,
) -> Assembled:
    """The same of a graph that is rewritten already, which several plans may share."""
    stored: set[tuple[int, int]] = set()
    while True:
        try:
            return _emitted(graph, target, options, kernels, limits or PlanLimits(), stored)
        except NotOnChip as error:
            stored.update(error.values)


def _emitted(
    graph: RewrittenGraph,
    target: Target,
    options: GraphOptions,
    kernels: Kernels | None,
    limits: PlanLimits,
    stored: set[tuple[int, int]],
) -> Assembled:
    """The tile IR of a graph, whose loops carry in memory what is `stored`."""
    module = graph.module
    known = machine({**module.kernels, **(kernels or {})}, limits)
    device = DeviceProgram(known, target, module, limits, options.logical_cores)
    device.stored_between_trips = stored
    device.saturates = options.saturate_infinity and target.generation < BIT_FOR_BIT
    block, taken = graph.block, graph.donated
    device.squares.update(graph.squares)
    device.sorts.update(graph.sorts)
    device.visible.update(graph.visible)
    device.row_major = graph.row_major
    device.orders = graph.orders
    with device.builder.at(graph_location(device.builder.declarations.name)):
        device.stack(families(block))
        arguments = [
            device.parameter(_checked(node), node.dims, f"p{number}", node)
            for number, node in enumerate(block.parameters)
        ]
        results = Scheduler(device, graph.simplifier, block, arguments).run()
        outputs: list[View] = []
        for value, node in zip(results, block.results):
            before = len(device.steps)
            outputs.append(_result(device, value, outputs))
            device.made_for(node, device.steps[before:])
        for number, parameter in taken.items():
            made = outputs[number].buffer
            if take_over(device.steps, outputs[number], arguments[parameter]):
                device.discard(made)
                outputs[number] = arguments[parameter]
        for view in outputs:
            if view.buffer.size:
                device.result(view)
        returned = [view.buffer for view in outputs]
        if options.logical_cores == 1 or limits.alone:
            idle = [Settled([], Counter()) for _ in range(1, options.logical_cores)]
            cores = [Settled(device.steps, reads_of(device.steps)), *idle]
        else:
            cores = shared_out(device, returned)
        device.declare()
        for core, (steps, uses) in enumerate(cores):
            device.uses = uses
            device.uses.update(returned)
            with device.on(core):
                emit(device, steps)
        for view in outputs:
            if view.buffer.size:
                device.returned(view)
    kernel = TakeTurns(device.first_of_steps).run(device.builder.kernel())
    if device.notes.recomputed:
        nodes = (node for body in kernel.bodies for node in walk(body))
        device.notes.decided = sum(isinstance(node, While) for node in nodes)
    return Assembled(kernel, device.notes)


def _result(device: DeviceProgram, value: Lazy, others: list[View]) -> View:
    """A value in a buffer of its own."""
    if value.type not in DTYPES:
        raise NeuronError("hlo-not-compiled", f"a result of {value.type}{list(value.dims)}")
    if 0 in value.dims:
        return device.buffer(value.type, value.dims)
    if isinstance(value, View) and value.buffer.kind == "arena" and is_whole(value):
        if all(value.buffer is not view.buffer for view in others):
            return value
    view = device.buffer(value.type, value.dims)
    store(device, value, view)
    return view


def _checked(node: Node) -> str:
    """A parameter's type, which the device must have."""
    if node.type not in DTYPES:
        assert node.instruction is not None
        what = f"{subject(node.instruction)} of {node.type}{list(node.dims)}"
        raise NeuronError("hlo-not-compiled", what)
    return node.type
