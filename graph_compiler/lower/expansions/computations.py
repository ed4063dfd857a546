"""Applies a computation of the graph to every element, to every window, or slice after slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.host_kernels.bodies import FoldKernel, ScalarBody
from graph_compiler.lower.expansions.expansions import STEP, Text, expanded, shape
from graph_compiler.lower.expansions.linear import RowLoop
from graph_compiler.schedule.fusion import ElementExpression, Lazy, Literal
from graph_compiler.schedule.placement import padded
from graph_compiler.schedule.reductions import body_of, call, operand_of

if TYPE_CHECKING:
    from graph_compiler.schedule.nodes import Node
    from graph_compiler.schedule.schedule import Scheduler


def map_elements(scheduler: Scheduler, node: Node) -> Lazy | None:
    """A computation of scalars as element-wise operations; None where it has no such form."""
    item = node.instruction
    assert item is not None
    body = body_of(scheduler, item.called[0])
    values = [scheduler.value(operand) for operand in node.operands]
    if body is None or any(value.type != type for value, type in zip(values, body.parameters)):
        return None
    return _expressions(body, values, node.dims)[0]


def _expressions(body: ScalarBody, values: Sequence[Lazy], dims: tuple[int, ...]) -> list[Lazy]:
    found = list(values)
    for step in body.steps:
        if step.op == _LITERAL:
            number = PRIMITIVE_TYPES[step.type].numpy.type(step.attribute)
            found.append(Literal(step.type, dims, number))
        else:
            arguments = [found[argument] for argument in step.arguments]
            found.append(ElementExpression(step.op, step.type, step.attribute, arguments))
    return [found[result] for result in body.results]


_LITERAL = "literal"
"""The opcode of steps that are numbers."""


def reduce_windows(scheduler: Scheduler, node: Node) -> Any:
    """Windows of one or several arrays, folded by any computation: views of the padded arrays."""
    item = node.instruction
    assert item is not None
    half = len(node.operands) // 2
    body = body_of(scheduler, item.called[0])
    forms = [operand.type for operand in node.operands[:half]]
    if body is None or forms != [type for type, _ in node.results]:
        return None
    if 0 in node.results[0][1] or 0 in node.operands[0].dims:
        return None
    program = scheduler.program
    parts = item.attribute("window").dimensions
    edges = [(p.padding_low, p.padding_high, (p.base_dilation or 1) - 1) for p in parts]
    grown = [(max(0, low), max(0, high), interior) for low, high, interior in edges]
    dims = node.results[0][1]
    sizes = tuple(part.size for part in parts)
    windows, starts = [], []
    for operand, initial in zip(node.operands[:half], node.operands[half:]):
        view = scheduler.view(operand)
        starts.append(scheduler.view(initial))
        if any(any(edge) for edge in grown):
            whole = tuple(
                low + high + size + (size - 1) * interior
                for size, (low, high, interior) in zip(view.dims, grown)
            )
            view = padded(program, view, scheduler.value(initial), grown, whole)
        cut = sum(max(0, -low) * stride for (low, _, _), stride in zip(edges, view.strides))
        outer = [stride * part.stride for stride, part in zip(view.strides, parts)]
        inner = [s * (part.window_dilation or 1) for s, part in zip(view.strides, parts)]
        windows.append(view.placed((*dims, *sizes), (*outer, *inner), cut))
    results = [program.buffer(*form) for form in node.results]
    nothing = (0,) * len(sizes)
    outputs = tuple((view.type, (*view.strides, *nothing)) for view in results)
    reduced = (False,) * len(dims) + (True,) * len(sizes)
    kernel = FoldKernel((*dims, *sizes), reduced, outputs, tuple(map(operand_of, windows)), body)
    call(scheduler, kernel, results, [*windows, *starts])
    return results[0] if len(results) == 1 else results


def scan(scheduler: Scheduler, node: Node) -> Any:
    """A loop over the slices: its state are inputs, outputs and carries."""
    item = node.instruction
    assert item is not None
    (axis,) = item.attribute("dimensions")
    carries = item.attribute("num_carries")
    number = len(node.operands) - carries
    length = node.operands[0].dims[axis]
    outputs = node.results[: len(node.results) - carries]
    if not length:
        return None
    text = Text(node)
    targets = [text.number(type, 0, dims) for type, dims in outputs]
    loop = RowLoop(text, [*text.operands, *targets], length)
    inside = loop.body
    place, *state = loop.state
    if item.attributes.get("is_reverse"):
        place = inside.apply("subtract", inside.number("s32", length - 1), place)
    zero = inside.number("s32", 0)

    def starts(rank: int) -> list[str]:
        return [place if position == axis else zero for position in range(rank)]

    arguments = []
    for name in state[:number]:
        dims = list(inside.dims(name))
        dims[axis] = 1
        more = f"dynamic_slice_sizes={{{','.join(map(str, dims))}}}"
        operands = [name, *starts(len(dims))]
        part = inside.add(inside.type(name), dims, "dynamic-slice", operands, more)
        arguments.append(inside.reshape(part, dims[:axis] + dims[axis + 1 :]))
    arguments += state[number : number + carries]
    found = _called(inside, item.called[0], arguments)
    after = [
        inside.add(
            inside.type(target),
            inside.dims(target),
            "dynamic-update-slice",
            [target, _as_slice(inside, value, target, axis), *starts(len(inside.dims(target)))],
        )
        for target, value in zip(state[number + carries :], found)
    ]
    last = found[len(outputs) :]
    results = loop.close([*state[:number], *last, *after])
    given = results[number + carries :] + results[number : number + carries]
    return expanded(scheduler, node, text.module(given), item.called[0])


def _as_slice(text: Text, value: str, target: str, axis: int) -> str:
    dims = list(text.dims(target))
    dims[axis] = 1
    return text.reshape(value, dims)


def _called(text: Text, computation: Any, arguments: Sequence[str]) -> list[str]:
    """The results of a computation of the graph, which `STEP` stands for."""
    root = computation.root.shape
    parts = root.tuple_shapes if root.is_tuple else (root,)
    forms = [(part.element_type, part.dimensions) for part in parts]
    result = ", ".join(shape(*form) for form in forms)
    result = f"({result})" if root.is_tuple else result
    lines = [
        f"  p{number} = {shape(*text.types[name])} parameter({number})"
        for number, name in enumerate(arguments)
    ]
    lines.append(f'  ROOT r = {result} custom-call(), custom_call_target="{STEP}"')
    text.computations.append("\n".join([f"{STEP} {{", *lines, "}\n"]))
    operands = ", ".join(arguments)
    text.lines.append(f"  found = {result} call({operands}), to_apply={STEP}")
    if not root.is_tuple:
        text.types["found"] = forms[0]
        return ["found"]
    return [
        text.add(*form, "get-tuple-element", ["found"], f"index={place}")
        for place, form in enumerate(forms)
    ]
