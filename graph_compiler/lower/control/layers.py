"""Equal layers, one after another, become one loop.

A model repeats a layer, with other weights each time. `roll` finds runs of layers in a block: nodes
in the same order, with the same operations, that are wired alike. The run becomes one node,
`LAYERS`, whose block is one layer. An operand of the layer is

- fixed: the same value for all layers;
- carried: a value that the layer before made, or one from outside for the first layer;
- from a family: each layer has its own, of the same form. Parameters of a family lie one behind
  another in memory (`families`), so that a loop on the device goes through them.

What later nodes use of the last layer are the node's results. A layer of which others are used
too, as training keeps activations, stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graph_compiler.schedule.nodes import Block, Node, NodeForm, is_effect
from graph_compiler.schedule.simplify import is_uniform
from graph_compiler.schedule.structure import computation_digest, stated_attributes
from graph_compiler.schedule.views import count_of

LAYERS = "layers"
"""The operation of a node that stands for layers: `blocks` has one layer, `value` its `Layers`."""

FEWEST = 3
"""Layers that are rolled, at least: two take as long to compile as a loop that is rotated."""

SMALLEST = 24
"""Operations of a layer that is rolled, at least."""

LARGEST = 4096
"""Operations of a layer that is looked for, at most."""

CANDIDATES = 64
"""Repetitions that are looked at closely."""


@dataclass(frozen=True)
class Layers:
    """How a layer's parameters and results belong together, in the order of the parameters:
    `fixed` ones, then one for each of `carried`, the number of the result which is the next
    layer's; then `families`. The node's operands are in the same order, those of a family one
    layer after another."""

    trips: int
    fixed: int
    carried: tuple[int, ...]
    families: int


@dataclass
class _LayerRun:
    """Layers as lists of nodes, those of one layer like those of any other; how each operand of
    each node is found, by the layer's number."""

    layers: list[list[Node]]
    at: list[dict[Node, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.at = [{node: place for place, node in enumerate(layer)} for layer in self.layers]


def roll(block: Block, elsewhere: Collection[Node]) -> None:
    """Replace runs of equal layers by nodes of `LAYERS`. `elsewhere`: parameters that cannot lie
    one behind another."""
    _repeat_broadcasts(block)
    taken = set(elsewhere)
    while (node := _largest(block, taken)) is not None:
        for members in family_operands(node):
            taken.update(map(_source, members))


def _repeat_broadcasts(block: Block) -> None:
    """Each user has its own broadcast of a parameter, which no memory is needed for, so that none
    is one layer's and used by others."""
    nodes = []
    kept: set[Node] = set(block.results)
    for node in block.nodes:
        for number, operand in enumerate(node.operands):
            if operand.op != "broadcast" or _source(operand.operands[0]).op != "parameter":
                continue
            if operand in kept:
                operand = Node("broadcast", operand.results, operand.operands, operand.instruction)
                node.operands = [*node.operands]
                node.operands[number] = operand
                nodes.append(operand)
            kept.add(operand)
        nodes.append(node)
    block.nodes = nodes


def families(block: Block) -> list[list[Node]]:
    """The parameters of a block that lie one behind another: a list for each family of them."""
    found: dict[tuple[Node, ...], None] = {}
    for node in block.nodes:
        if node.op == LAYERS:
            for members in family_operands(node):
                sources = tuple(map(_source, members))
                if sources[0].op == "parameter" and len(set(sources)) > 1:
                    found[sources] = None
    return [list(sources) for sources in found]


def family_operands(node: Node) -> list[list[Node]]:
    """The operands of each family, one layer after another."""
    layers: Layers = node.value
    first = layers.fixed + len(layers.carried)
    return [
        node.operands[first + number * layers.trips : first + (number + 1) * layers.trips]
        for number in range(layers.families)
    ]


_PARTS = ("reshape", "slice")
"""Operations that make a member of a family of a parameter; they are none of the layer's."""


def _source(node: Node) -> Node:
    """What a node is a part of."""
    while node.op in _PARTS:
        (node,) = node.operands
    return node


def _largest(block: Block, taken: set[Node]) -> Node | None:
    """Roll the run that leaves the fewest operations; None where there is none."""
    uses = block.uses()
    needed = [node for node in block.nodes if node in uses or is_effect(node)]
    nodes = [node for node in needed if _source(node).op != "parameter"]
    forms = _forms(nodes)
    users = _users(block, needed)
    place = {node: number for number, node in enumerate(nodes)}
    for first, period, count in _periods(forms):
        run = _run(nodes, first, period, count, users, place)
        if run is None or len(run.layers) < FEWEST:
            continue
        node = _rolled(block, run, users, taken)
        if node is not None:
            return node
    return None


# Where layers may be


def _forms(nodes: Sequence[Node]) -> np.ndarray[Any, Any]:
    """A number for each node, equal for nodes that do the same with operands of the same form."""
    numbers: dict[Any, int] = {}
    digests: dict[int, str] = {}
    return np.array([numbers.setdefault(_form(node, digests), len(numbers)) for node in nodes])


def _form(node: Node, digests: dict[int, str]) -> Any:
    item = node.instruction
    attributes: Any = ()
    if item is not None:
        for called in item.called:
            if id(called) not in digests:
                digests[id(called)] = computation_digest(called)
        called_digests = tuple(digests[id(called)] for called in item.called)
        attributes = (*stated_attributes(item), *called_digests)
    # What blocks do depends on more than this says.
    own = (id(node),) if node.blocks or node.op == "pick" else ()
    operands = tuple(
        (tuple(operand.results), operand.op == "constant") for operand in node.operands
    )
    return (node.op, tuple(node.results), operands, attributes, repr(node.value), own)


def _periods(forms: np.ndarray[Any, Any]) -> list[tuple[int, int, int]]:
    """(first node, nodes of a layer, nodes of the run) of repetitions, those first that leave the
    fewest nodes."""
    found = []
    for period in range(SMALLEST, min(LARGEST, len(forms) // 2) + 1):
        same = forms[period:] == forms[:-period]
        differs = np.concatenate([[-1], np.flatnonzero(~same), [len(same)]])
        lengths = np.diff(differs) - 1
        for place in np.flatnonzero(lengths >= period).tolist():
            found.append((int(differs[place]) + 1, period, int(lengths[place]) + period))
    return sorted(found, key=lambda run: (run[1] - run[2], run[1]))[:CANDIDATES]


def _users(block: Block, nodes: Sequence[Node]) -> dict[Node, list[Node | None]]:
    """Who uses each node; None stands for the block's results."""
    users: dict[Node, list[Node | None]] = {}
    for node in nodes:
        for operand in node.operands:
            users.setdefault(operand, []).append(node)
    for result in block.results:
        users.setdefault(result, []).append(None)
    return users


def _run(
    nodes: list[Node],
    first: int,
    period: int,
    count: int,
    users: dict[Node, list[Node | None]],
    place: dict[Node, int],
) -> _LayerRun | None:
    """Layers that are wired alike, cut where the fewest elements go from one to the next."""
    crossing = np.zeros(2 * period + 1)
    for number in range(first, first + 2 * period):
        inside = [place[user] for user in users.get(nodes[number], ()) if user in place]
        ends = [user for user in inside if user - number <= period]
        if ends:  # others are far from here, and not what a layer hands on
            size = sum(count_of(dims) for _, dims in nodes[number].results)
            crossing[number - first + 1 : min(max(ends) - first, 2 * period) + 1] += size
    costs = crossing[period : min(2 * period, count - period + 1)]
    cuts = np.flatnonzero(costs == costs.min())
    found = [
        _stretch(nodes, first + int(cut), period, first + count)
        for cut in dict.fromkeys([cuts[0], cuts[-1]])
    ]
    return max(filter(None, found), key=lambda run: len(run.layers), default=None)


def _stretch(nodes: list[Node], begin: int, period: int, end: int) -> _LayerRun | None:
    """The longest stretch of layers of which each is wired like the one before."""
    starts = range(begin, end - period + 1, period)
    run = _LayerRun([nodes[start : start + period] for start in starts])
    alike = [*(_alike(run, number) for number in range(len(run.layers) - 1)), False]
    best = length = at = 0
    while at < len(alike):
        end = alike.index(False, at)
        if end - at > length:
            best, length = at, end - at
        at = end + 1
    if not length:
        return None
    run = _LayerRun(run.layers[best : best + length + 1])
    while (before := _layer_before(run)) is not None:
        run = _LayerRun([before, *run.layers])
    return run


def _alike(run: _LayerRun, number: int) -> bool:
    """Whether a layer and the one behind it are wired alike."""
    own, following = run.at[number], run.at[number + 1]
    before = run.at[number - 1] if number else {}
    for node, next_node in zip(run.layers[number], run.layers[number + 1]):
        if is_effect(node):
            return False
        for operand, next_operand in zip(node.operands, next_node.operands):
            inside = following.get(next_operand)
            if own.get(operand) != inside:
                return False
            if inside is None and number and before.get(operand) != own.get(next_operand):
                return False
    return True


def _layer_before(run: _LayerRun) -> list[Node] | None:
    """The layer before the first one, whatever order its nodes are in; None where there is none.
    Nodes that several layers share, and that are listed in one of them, are left out."""
    first, second = run.at[0], run.at[1]
    found: dict[Node, Node] = {}
    todo: list[tuple[Node, Node]] = []
    for node, next_node in zip(run.layers[0], run.layers[1]):
        for operand, next_operand in zip(node.operands, next_node.operands):
            if next_operand in first and operand not in first:
                todo.append((next_operand, operand))
    digests: dict[int, str] = {}
    while todo:
        node, earlier = todo.pop()
        if node not in first:
            continue
        if node in found:
            if found[node] is not earlier:
                return None
            continue
        if earlier.op in ("parameter", "constant") or is_effect(earlier):
            return None
        if earlier in first or earlier in second or _form(node, digests) != _form(earlier, digests):
            return None
        found[node] = earlier
        todo += zip(node.operands, earlier.operands)
    if len(found) < len(first) or len(set(found.values())) < len(first):
        return None
    layer = [found[node] for node in run.layers[0]]
    extended = _LayerRun([layer, *run.layers])
    return layer if _alike(extended, 0) and _alike(extended, 1) else None


# The loop


@dataclass
class _Wires:
    """What a layer needs from outside, each by the operands that all layers have for it."""

    fixed: dict[Node, Node] = field(default_factory=dict)
    carried: dict[tuple[int, Node], Node] = field(default_factory=dict)
    families: dict[tuple[Node, ...], Node] = field(default_factory=dict)


def _rolled(
    block: Block, run: _LayerRun, users: dict[Node, list[Node | None]], taken: set[Node]
) -> Node | None:
    """The block with a run of layers as one node; None where the run has to stay."""
    inside = {node for layer in run.layers for node in layer}
    if any(node.op == LAYERS for node in run.layers[0]):
        return None
    wires = _Wires()
    copies: dict[Node, Node] = {}
    body = Block()
    for place, node in enumerate(run.layers[0]):
        operands = []
        for number in range(len(node.operands)):
            given = [layer[place].operands[number] for layer in run.layers]
            operand = copies.get(given[0]) or _wire(run, given, wires)
            if operand is None:
                return None
            operands.append(operand)
        copies[node] = Node(
            node.op, node.results, operands, node.instruction, node.value, node.blocks
        )
        body.nodes.append(copies[node])
    if any(not _may_be_family(members, taken) for members in wires.families):
        return None
    if any(node in inside for members in wires.families for node in members):
        return None
    results = _results(run, inside, users)
    if results is None or not wires.carried:
        return None
    carried = []
    for place, _ in wires.carried:
        if place not in results:
            results.append(place)
        carried.append(results.index(place))
    body.parameters = [*wires.fixed.values(), *wires.carried.values(), *wires.families.values()]
    for number, parameter in enumerate(body.parameters):
        parameter.value = number
    first = run.layers[0]
    body.results = [copies[first[place]] for place in results]
    node = Node(
        LAYERS,
        [_form_of(first[place]) for place in results],
        [
            *wires.fixed,
            *(outside for _, outside in wires.carried),
            *(member for members in wires.families for member in members),
        ],
        value=Layers(len(run.layers), len(wires.fixed), tuple(carried), len(wires.families)),
        blocks=[body],
    )
    ordered = _ordered(block, inside, node)
    if ordered is None:
        return None
    before, behind = ordered
    picks = [Node("pick", [form], [node], value=number) for number, form in enumerate(node.results)]
    last = {run.layers[-1][place]: pick for place, pick in zip(results, picks)}
    for one in behind:
        one.operands = [last.get(operand, operand) for operand in one.operands]
    block.nodes = [*before, node, *picks, *behind]
    block.results = [last.get(result, result) for result in block.results]
    return node


def _form_of(node: Node) -> NodeForm:
    return node.type, node.dims


def _wire(run: _LayerRun, given: list[Node], wires: _Wires) -> Node | None:
    """The layer's parameter for what the layers have as an operand; None where it has no form."""
    if len({_form_of(operand) for operand in given}) > 1 or len(given[0].results) > 1:
        return None
    if all(operand is given[0] or _is_same_constant(operand, given[0]) for operand in given):
        kept, key = wires.fixed, given[0]
        if key.op == "constant":
            return key
        return kept.setdefault(key, _parameter(key))
    places = {run.at[number].get(operand) for number, operand in enumerate(given[1:])}
    if places != {None}:
        (place,) = places if len(places) == 1 else (None,)
        if place is None or given[0] in run.at[0]:
            return None
        return wires.carried.setdefault((place, given[0]), _parameter(given[0]))
    return wires.families.setdefault(tuple(given), _parameter(given[0]))


def _parameter(node: Node) -> Node:
    return Node("parameter", [_form_of(node)], [])


def _is_same_constant(one: Node, other: Node) -> bool:
    if one.op != "constant" or other.op != "constant" or one.results != other.results:
        return False
    if is_uniform(one.value) and is_uniform(other.value):
        first = (0,) * one.value.ndim
        return bool(one.value[first].tobytes() == other.value[first].tobytes())
    return bool(one.value.tobytes() == other.value.tobytes())


def _may_be_family(members: tuple[Node, ...], taken: set[Node]) -> bool:
    """Whether members are one behind another, or can be: constants, parts of one parameter, or
    parameters that are in no other family."""
    if 0 in members[0].dims:  # there is nothing to go through
        return False
    if all(member.op == "constant" for member in members):
        return True
    sources = [_source(member) for member in members]
    if any(source.op != "parameter" for source in sources):
        return False
    if all(source is sources[0] for source in sources):
        return True
    whole = all(
        count_of(member.dims) == count_of(source.dims) for member, source in zip(members, sources)
    )
    return whole and len(set(sources)) == len(sources) and taken.isdisjoint(sources)


def _results(
    run: _LayerRun, inside: set[Node], users: dict[Node, list[Node | None]]
) -> list[int] | None:
    """The places in the last layer of what is used behind it; None where other layers' is too."""
    for layer in run.layers[:-1]:
        if any(user not in inside for node in layer for user in users.get(node, ())):
            return None
    last = run.layers[-1]
    found = [
        place
        for place, node in enumerate(last)
        if any(user not in inside for user in users.get(node, ()))
    ]
    return None if any(len(last[place].results) > 1 for place in found) else found


def _ordered(block: Block, inside: set[Node], node: Node) -> tuple[list[Node], list[Node]] | None:
    """The nodes that come before and behind the layers; None where layers need what others make
    of their results."""
    behind: set[Node] = set()
    end = max(number for number, one in enumerate(block.nodes) if one in inside) + 1
    for one in block.nodes[:end]:
        if one in inside:
            continue
        if any(operand in inside or operand in behind for operand in one.operands):
            behind.add(one)
    if not behind.isdisjoint(node.operands):
        return None
    early = [one for one in block.nodes[:end] if one not in inside and one not in behind]
    late = [one for one in block.nodes[:end] if one in behind]
    return early, late + block.nodes[end:]
