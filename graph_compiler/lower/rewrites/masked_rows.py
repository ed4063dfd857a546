"""Rows of a softmax that are masked wholly: zeros, without a choice for each element.

Before, as PyTorch states attention: `select(not any(x != -inf), 0, exp(x - max(x)) / sum(exp(x -
max(x))))`, which keeps rows of -infinity from becoming NaN. After: the largest number is sought
from the lowest finite one on, so that exponentials of such a row are 0. The sum is at least 1/2;
in every other row it is so anyway, since the largest number counts 1. Rows with NaN or with
+infinity are what they were.
"""

from __future__ import annotations

import numpy as np

from graph_compiler.lower.rewrites.softmax import (
    EXPONENTIALS,
    LOWEST,
    Softmax,
    axes_of,
    repeated_along,
    softmax_of_divisor,
    uniform,
)
from graph_compiler.schedule.nodes import Block, Node

_LEAST_SUM = 0.5


def zeros_of_masked_rows(block: Block) -> None:
    """Rewrite such choices, in a block and those inside of it."""
    uses = block.uses()
    behind: dict[Node, Node] = {}
    chosen: dict[Node, Node] = {}
    for node in block.nodes:
        for inner in node.blocks:
            zeros_of_masked_rows(inner)
        found = _choice(node, uses)
        if found is None:
            continue
        quotient, (total, largest, _) = found
        chosen[node] = quotient
        largest.operands = [largest.operands[0], uniform(LOWEST, largest.operands[1])]
        behind[total] = Node(
            "maximum", total.results, [total, uniform(_LEAST_SUM, total)], total.instruction
        )
    if not chosen:
        return
    nodes: list[Node] = []
    for node in block.nodes:
        operands = [chosen.get(operand, operand) for operand in node.operands]
        node.operands = [behind.get(operand, operand) for operand in operands]
        nodes.append(node)
        if node in behind:
            nodes.append(behind[node])
    block.nodes = nodes
    block.results = [chosen.get(result, result) for result in block.results]


def _choice(node: Node, uses: dict[Node, int]) -> tuple[Node, Softmax] | None:
    """A quotient that a node chooses unless its row is masked, where it chooses zeros, and what the
    divisor is made of, for nobody else; None of other nodes."""
    if node.op != "select":
        return None
    condition, *others = node.operands
    for quotient, zero, masked_is in ((others[1], others[0], True), (others[0], others[1], False)):
        if quotient.op != "divide" or zero.op != "constant" or np.any(zero.value):
            continue
        softmax = softmax_of_divisor(quotient.operands[1])
        if softmax is None or uses.get(softmax.total) != 1 or uses.get(softmax.largest) != 1:
            return None
        if np.any(np.signbit(zero.value)) or not _is_plain(quotient, softmax):
            return None
        rows = repeated_along(condition, softmax.total)
        return (quotient, softmax) if rows and _says_masked(rows, softmax, masked_is) else None
    return None


def _is_plain(quotient: Node, softmax: Softmax) -> bool:
    """Whether a quotient is of the exponentials that are summed up, all in fp32, and those are of
    differences: of numbers that are scaled, the lowest one might be none."""
    exponentials = softmax.total.operands[0]
    single = {softmax.total.type, softmax.largest.type, exponentials.type} == {"f32"}
    plain = exponentials.op in EXPONENTIALS and exponentials.operands[0].op == "subtract"
    return single and plain and quotient.operands[0] is exponentials


def _says_masked(rows: Node, softmax: Softmax, masked_is: bool) -> bool:
    """Whether a node says of each row that all its numbers are -infinity, or by `masked_is` that
    some are not."""
    rows, turned = _without_not(rows, reshaped=True)
    if rows.op != "reduce" or rows.instruction is None or len(rows.operands) != 2:
        return False
    value, initial = rows.operands
    every = rows.instruction.called[0].root.opcode
    if every not in _FOLDS or axes_of(rows) != axes_of(softmax.total):
        return False
    neutral = initial.op == "constant" and bool(np.all(initial.value == (every == "and")))
    value, inside = _without_not(value, reshaped=False)
    direction = _against_infinity(value, softmax.numbers)
    # All are -infinity: `and` of EQ, or not `or` of NE.
    equal = (direction == "EQ") != inside
    if direction not in ("EQ", "NE") or not neutral or equal != (every == "and"):
        return False
    return ((every == "and") != turned) == masked_is


_FOLDS = ("and", "or")


def _without_not(node: Node, *, reshaped: bool) -> tuple[Node, bool]:
    """What a node negates (or reshapes), and whether it does an odd number of times."""
    turned = False
    while node.op == "not" or (reshaped and node.op == "reshape"):
        turned ^= node.op == "not"
        (node,) = node.operands
    return node, turned


def _against_infinity(node: Node, numbers: Node) -> str | None:
    """The direction in which a node compares numbers with -infinity; None of other nodes."""
    if node.op != "compare" or node.instruction is None:
        return None
    left, right = node.operands
    if left is not numbers or right.op != "constant" or not np.all(right.value == -np.inf):
        return None
    return str(node.instruction.attribute("comparison_direction"))
