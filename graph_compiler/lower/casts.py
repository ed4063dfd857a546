"""Types that options ask for: fp32 demoted (--auto-cast), f8e4m3fn read as f8e4m3.

Which operations, and that types of parameters and results never change, is what the SDK documents
(compiler/neuronx-cc/api-reference-guide/index.rst, --auto-cast;
about-neuron/appnotes/neuronx-cc/neuronx-cc-training-mixed-precision.rst).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from graph_compiler.hlo.operators.folding import binary_opcode
from graph_compiler.lower.nests.arithmetic import FORMS
from graph_compiler.lower.rewrites.constants import cast
from graph_compiler.options import CAST_TYPES
from graph_compiler.schedule.nodes import Block, Node
from graph_compiler.schedule.views import MOVES

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Computation
    from graph_compiler.options import GraphOptions

_SINGLE = "f32"

PRODUCTS = frozenset({"dot", "convolution"})
"""Opcodes that the tensor engine computes: products of the operands' type, sums in fp32."""

_KEPT = frozenset({"bitcast-convert"})
"""Opcodes whose meaning is the bits of their operands."""

DEMOTED = (
    frozenset({*FORMS, *MOVES, "reduce", "concatenate", "pad", "dynamic-slice"})
    | {"dynamic-update-slice", "gather"}
) - _KEPT
"""Opcodes that compute in another type when their operands have it."""


def demote(block: Block, options: GraphOptions) -> None:
    """Cast fp32 values as the options say, in a block and those within it.

    Before: `d = f32 dot(x, y)`; after "matmult": `d = f32 dot(bf16 convert(x), bf16 convert(y))`.
    After "all", what follows takes the values in bf16, too; results are converted back.
    """
    if options.auto_cast in _CASTS:
        type = CAST_TYPES[options.auto_cast_type]
        _Casts(block, type, _CASTS[options.auto_cast]).run()


_ORDERS = ("reshape", "transpose")
"""Operations that only order elements otherwise."""

_CASTS: dict[str, frozenset[str]] = {"matmult": frozenset(), "all": DEMOTED}
"""Opcodes demoted besides products, by --auto-cast."""


@dataclass
class _Casts:
    """The casts of one block. `wide` and `narrow` are what a value was converted to."""

    block: Block
    type: str
    opcodes: frozenset[str]
    nodes: list[Node] = field(default_factory=list)
    wide: dict[Node, Node] = field(default_factory=dict)
    narrow: dict[Node, Node] = field(default_factory=dict)

    def run(self) -> None:
        changed: set[Node] = set()
        for node in self.block.nodes:
            for inner in node.blocks:
                _Casts(inner, self.type, self.opcodes).run()
            product = node.op in PRODUCTS and node.type == _SINGLE
            whole = self._is_demoted(node, changed)
            cast = self._narrow if product or whole else self._wide
            node.operands = [cast(o, changed) for o in node.operands]
            if whole and node.type == _SINGLE:
                node.type, node.results = self.type, [(self.type, node.dims)]
                changed.add(node)
            self.nodes.append(node)
        self.block.results = [self._wide(result, changed) for result in self.block.results]
        self.block.nodes = self.nodes

    def _is_demoted(self, node: Node, changed: set[Node]) -> bool:
        """Whether an operation computes in the narrow type: fp32 ones, and comparisons of them."""
        if node.op not in self.opcodes or len(node.results) != 1:
            return False
        if any(binary_opcode(called) is None for called in _called(node)):
            return False  # a computation of fp32 scalars that takes no others
        return node.type == _SINGLE or any(operand in changed for operand in node.operands)

    def _narrow(self, node: Node, changed: set[Node]) -> Node:
        if node.type != _SINGLE:
            return node
        if node not in self.narrow:
            if node.op in _ORDERS:  # as it is computed, so that a product takes a view of it
                inner = self._narrow(node.operands[0], changed)
                form = (self.type, node.dims)
                self.narrow[node] = Node(node.op, [form], [inner], node.instruction)
                self.nodes.append(self.narrow[node])
            else:
                self.narrow[node] = self.converted(node, self.type)
        return self.narrow[node]

    def _wide(self, node: Node, changed: set[Node]) -> Node:
        if node not in changed:
            return node
        if node not in self.wide:
            self.wide[node] = self.converted(node, _SINGLE)
        return self.wide[node]

    def converted(self, node: Node, type: str) -> Node:
        """A value in another type; of a constant the elements, now."""
        form = (type, node.dims)
        if node.op == "constant":
            return Node("constant", [form], [], value=cast(node.value, type))
        converted = Node("convert", [form], [node])
        self.nodes.append(converted)
        return converted


def downcast(block: Block, options: GraphOptions) -> None:
    """Products of 32-bit integers in fp32, where the options permit it: the tensor engine has no
    integers (SDK compiler/error-codes/EVRF035.rst).

    Before: `d = s32 dot(x, y)`; after: `d = s32 convert(f32 dot(f32 convert(x), f32 convert(y)))`.
    """
    if _PERMITTED not in options.implicit_integer_downcast:
        return
    casts = _Casts(block, _SINGLE, frozenset())
    replaced: dict[Node, Node] = {}
    for node in block.nodes:
        for inner in node.blocks:
            downcast(inner, options)
        node.operands = [replaced.get(operand, operand) for operand in node.operands]
        integers = [o.type in _INTEGERS for o in node.operands]
        if node.op not in PRODUCTS or node.type not in _INTEGERS or not all(integers):
            casts.nodes.append(node)
            continue
        operands = [casts.converted(operand, _SINGLE) for operand in node.operands]
        product = Node(node.op, [(_SINGLE, node.dims)], operands, node.instruction)
        casts.nodes.append(product)
        replaced[node] = casts.converted(product, node.type)
    block.nodes = casts.nodes
    block.results = [replaced.get(result, result) for result in block.results]


def round_in_products(block: Block) -> None:
    """Products that are only used in bf16 are written so: they leave PSUM, whose sums are fp32,
    with the one rounding that the cast has.

    Before: `d = f32 dot(x, y); c = bf16 convert(d)`; after: `c = bf16 dot(x, y)`.
    """
    users: dict[Node, list[Node]] = {}
    needed = block.uses()
    block.nodes = [node for node in block.nodes if node in needed]
    for node in block.nodes:
        for inner in node.blocks:
            round_in_products(inner)
        for operand in node.operands:
            users.setdefault(operand, []).append(node)
    results = set(block.results)
    replaced: dict[Node, Node] = {}
    for node in block.nodes:
        casts = users.get(node, [])
        wide = node.op == "dot" and node.type == _SINGLE and node not in results
        if wide and casts and all((c.op, c.type) == ("convert", _ROUNDED) for c in casts):
            node.type, node.results = _ROUNDED, [(_ROUNDED, node.dims)]
            replaced.update(dict.fromkeys(casts, node))
    for node in block.nodes:
        node.operands = [replaced.get(operand, operand) for operand in node.operands]
    block.nodes = [node for node in block.nodes if node not in replaced]
    block.results = [replaced.get(result, result) for result in block.results]


def round_early(block: Block) -> None:
    """What chooses among values, or moves them, takes those that are only used in bf16 so: they are
    rounded where they are computed, to the same results.

    Before: `m = f32 reduce-window(x, -inf), to_apply=maximum; c = bf16 convert(m)`; after:
    `c = bf16 reduce-window(bf16 convert(x), bf16 -inf), to_apply=maximum`.
    """
    users: dict[Node, list[Node]] = {}
    for node in block.nodes:
        for inner in node.blocks:
            round_early(inner)
        for operand in node.operands:
            users.setdefault(operand, []).append(node)
    results = set(block.results)
    casts = _Casts(block, _ROUNDED, frozenset())
    early: dict[Node, list[Node]] = {}
    for node in reversed(block.nodes):
        own = users.get(node, [])
        cast = bool(own) and all((user.op, user.type) == ("convert", _ROUNDED) for user in own)
        first = node.operands[0] if node.operands else node
        alone = len(users.get(first, [])) == 1 and first.op != "parameter"
        if cast and alone and node not in results and node.type == _SINGLE and _chooses(node):
            early[node] = own
            users[first] = [Node("convert", [(_ROUNDED, first.dims)], [first])]
    if not early:
        return
    replaced: dict[Node, Node] = {}
    for node in block.nodes:
        node.operands = [replaced.get(operand, operand) for operand in node.operands]
        if node in early:
            replaced.update(dict.fromkeys(early[node], node))
            node.operands = [
                o if o.type == _ROUNDED else casts.converted(o, _ROUNDED) for o in node.operands
            ]
            node.type, node.results = _ROUNDED, [(_ROUNDED, node.dims)]
        if node not in replaced:
            casts.nodes.append(node)
    block.nodes = casts.nodes
    block.results = [replaced.get(result, result) for result in block.results]


def _chooses(node: Node) -> bool:
    """Whether each element of a result is one of those that a node takes, by their order."""
    if node.op in _MOVED:
        return True
    folds = {binary_opcode(called) for called in _called(node)}
    return node.op in _FOLDS and len(node.operands) == 2 and folds <= {"maximum", "minimum"}


_MOVED = frozenset({"pad", "reshape", "transpose", "slice"})
_FOLDS = frozenset({"reduce", "reduce-window"})
_ROUNDED = "bf16"
_PERMITTED = "dot"
_INTEGERS = frozenset({"s32", "u32"})


def _called(node: Node) -> list[Computation]:
    return [] if node.instruction is None else node.instruction.called
