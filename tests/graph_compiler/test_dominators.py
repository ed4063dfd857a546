"""Values that each of a value's operands depends on, against sets of them."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from graph_compiler import compile, parse_text
from graph_compiler.lower.rewrites.dominators import FARTHEST, Dominator
from graph_compiler.schedule.nodes import Node


@st.composite
def operands(draw: st.DrawFn) -> list[list[int]]:
    """For each value the earlier ones that it is computed from; none of an argument."""
    count, near = draw(st.integers(1, 60)), draw(st.integers(1, 6))
    return [
        draw(st.lists(st.integers(max(0, at - near), at - 1), max_size=3)) if at else []
        for at in range(count)
    ]


@given(operands())
def test_a_tree_has_what_sets_have(graph: list[list[int]]) -> None:
    nodes = [Node("value", [("f32", ())], []) for _ in graph]
    sets: list[set[int]] = []
    tree: list[Dominator] = []
    for number, before in enumerate(graph):
        shared = set.intersection(*(sets[at] for at in before)) if before else set()
        sets.append({number} | shared)
        nearest: Dominator | None = tree[before[0]] if before else None
        for other in before[1:]:
            nearest = nearest and nearest.common(tree[other])
        tree.append(Dominator(nodes[number], nearest))
    for number, found in enumerate(tree):
        item: Dominator | None = found
        chain = []
        while item is not None:
            chain.append(tree.index(item))
            item = item.nearest
        assert chain == sorted(sets[number], reverse=True)
        assert found.depth == len(chain) - 1
        assert found.farthest == tuple(nodes[at] for at in sorted(chain)[:FARTHEST])


def test_a_chain_takes_time_in_proportion_to_its_length() -> None:
    """Ten thousand sines; each with a list of those before it, they took half a minute."""
    body = "".join(f" x{n} = f32[8] sine(x{n - 1})\n" for n in range(1, 10_000))
    text = f"HloModule m\nENTRY e {{\n x0 = f32[8] parameter(0)\n{body} ROOT r = f32[8] sine(x9999)"
    module = parse_text(text + "\n}")
    start = time.process_time()
    compile(module, "trn2")
    assert time.process_time() - start < 10
