"""Reductions: along dimensions, over windows, with any computation of scalars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graph_compiler.hlo.operators.folding import binary_opcode
from graph_compiler.host_kernels.bodies import ArrayOperand, FoldKernel, ScalarBody
from graph_compiler.host_kernels.elements import UNSUPPORTED, ElementStep
from graph_compiler.host_kernels.loops import folds, literal
from graph_compiler.host_kernels.registers import register
from graph_compiler.schedule.attributes import source_of
from graph_compiler.schedule.fusion import reduce
from graph_compiler.schedule.placement import padded
from graph_compiler.schedule.steps import KernelCall, Place, place_of
from graph_compiler.schedule.views import MOVES, View, count_of

if TYPE_CHECKING:
    from graph_compiler.execute.driver import HostKernel
    from graph_compiler.hlo.graph import Computation
    from graph_compiler.schedule.nodes import Node
    from graph_compiler.schedule.schedule import Scheduler


def reduce_along(scheduler: Scheduler, node: Node) -> Any:
    """A reduction along dimensions, fused with what it reduces where it is one operation."""
    instruction = node.instruction
    assert instruction is not None
    if 0 in node.operands[0].dims:
        return None
    if len(node.operands) != 2:
        return _fold(scheduler, node)
    operand, initial = node.operands
    fold = binary_opcode(instruction.called[0])
    if not folds(fold, node.type) or operand.type != node.type:
        return _fold(scheduler, node)
    assert fold is not None
    value = scheduler.value(operand)
    axes = tuple(instruction.attribute("dimensions"))
    start = scheduler.view(initial)
    return reduce(scheduler.program, value, start, axes, fold, node.type)


def _fold(scheduler: Scheduler, node: Node) -> Any:
    """Several arrays, or a computation that is not one operation: element after element."""
    instruction = node.instruction
    assert instruction is not None
    half = len(node.operands) // 2
    body = body_of(scheduler, instruction.called[0])
    if body is None or any(
        operand.type != type for operand, (type, _) in zip(node.operands, node.results)
    ):
        return None
    views = [scheduler.view(operand) for operand in node.operands]
    axes = instruction.attribute("dimensions")
    counts = node.operands[0].dims
    reduced = tuple(axis in axes for axis in range(len(counts)))
    results = [scheduler.program.buffer(*form) for form in node.results]
    if 0 not in node.results[0][1]:
        outputs = []
        for view in results:
            steps = iter(view.strides)
            outputs.append((view.type, tuple(0 if gone else next(steps) for gone in reduced)))
        kernel = FoldKernel(
            counts, reduced, tuple(outputs), tuple(map(operand_of, views[:half])), body
        )
        call(scheduler, kernel, results, views)
    return results[0] if len(results) == 1 else results


def body_of(scheduler: Scheduler, computation: Computation) -> ScalarBody | None:
    """A computation of scalars as steps; None where one of them has no native form."""
    machine = scheduler.program.machine
    block = scheduler.simplifier.block(computation)
    if any(register(node.type) is None for node in (*block.parameters, *block.results)):
        return None
    numbers: dict[Node, int] = {node: i for i, node in enumerate(block.parameters)}
    steps: list[ElementStep] = []
    uses = block.uses()

    def number(node: Node) -> int:
        if node not in numbers:
            assert node.op == "constant"
            numbers[node] = len(block.parameters) + len(steps)
            steps.append(literal(node.type, node.value[()]))
        return numbers[node]

    def known(node: Node) -> Any:
        return node.value[()] if node.op == "constant" else None

    for node in block.nodes:
        if node not in uses:
            continue
        if node.op in MOVES:
            numbers[node] = number(node.operands[0])
            continue
        attribute = machine.attribute(node, known)
        if attribute is UNSUPPORTED:
            return None
        arguments = tuple(number(operand) for operand in machine.operands(node))
        numbers[node] = len(block.parameters) + len(steps)
        steps.append(ElementStep(node.op, node.type, source_of(node), attribute, arguments))
    results = tuple(number(node) for node in block.results)
    return ScalarBody(tuple(node.type for node in block.parameters), tuple(steps), results)


def operand_of(view: View) -> ArrayOperand:
    """Type and strides of a view."""
    return view.type, view.strides


def call(
    scheduler: Scheduler,
    kernel: HostKernel,
    targets: list[View],
    sources: list[View],
    in_place: bool = False,
) -> None:
    """A call whose words are pointers to targets, then to sources. `in_place`: it reads targets."""
    words: list[int | Place] = [place_of(view) for view in (*targets, *sources)]
    reads, writes = [view.buffer for view in sources], [view.buffer for view in targets]
    if in_place:
        reads += writes
    scheduler.program.steps.append(KernelCall(kernel, words, reads, writes))


_WINDOW_WORK = 1 << 26
"""Elements that windows may take together; the host sums longer ones up by prefixes."""


def reduce_window(scheduler: Scheduler, node: Node) -> Any:
    """A reduction of overlapping windows, which are a view of the padded operand."""
    instruction = node.instruction
    assert instruction is not None
    if len(node.operands) != 2 or 0 in node.dims or 0 in node.operands[0].dims:
        return None
    operand, initial = node.operands
    fold = binary_opcode(instruction.called[0])
    parts = instruction.attribute("window").dimensions
    edges = [(p.padding_low, p.padding_high, (p.base_dilation or 1) - 1) for p in parts]
    work = count_of(node.dims) * count_of(tuple(part.size for part in parts))
    if not folds(fold, node.type) or operand.type != node.type or work > _WINDOW_WORK:
        return None
    if any(low < 0 or high < 0 for low, high, _ in edges):
        return None
    assert fold is not None
    program = scheduler.program
    start = scheduler.view(initial)
    view = scheduler.view(operand)
    if any(any(edge) for edge in edges):
        sizes = tuple(
            low + high + size + (size - 1) * interior
            for size, (low, high, interior) in zip(view.dims, edges)
        )
        view = padded(program, view, scheduler.value(initial), edges, sizes)
    strides = [stride * part.stride for stride, part in zip(view.strides, parts)]
    inner = [s * (part.window_dilation or 1) for s, part in zip(view.strides, parts)]
    windows = view.placed((*node.dims, *(part.size for part in parts)), (*strides, *inner))
    axes = tuple(range(len(node.dims), 2 * len(node.dims)))
    return reduce(program, windows, start, axes, fold, node.type)
