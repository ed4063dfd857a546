"""Nodes that rewrites write as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graph_compiler.hlo.text import parse_text
from graph_compiler.lower.expansions.expansions import Text
from graph_compiler.schedule.nodes import Node
from graph_compiler.schedule.simplify import Simplifier


def spliced(text: str, given: Sequence[Node], nodes: list[Node], like: Node) -> list[Node]:
    """The results of a text whose parameters are given nodes. Its own nodes are added to `nodes`,
    and come from where `like` comes from."""
    module = parse_text(text)
    inner = Simplifier(module).block(module.entry)
    known = dict(zip(inner.parameters, given, strict=True))
    for one in inner.nodes:
        one.operands = [known.get(operand, operand) for operand in one.operands]
        if one.instruction is not None and like.instruction is not None:
            one.instruction.metadata = like.instruction.metadata
    nodes += inner.nodes
    return [known.get(result, result) for result in inner.results]


def written(
    given: Sequence[Node], nodes: list[Node], like: Node, write: Callable[[Text], str]
) -> Node:
    """The same of one result, whose name `write` returns."""
    text = Text(Node("text", [], list(given)))
    (result,) = spliced(text.module([write(text)]), given, nodes, like)
    return result
