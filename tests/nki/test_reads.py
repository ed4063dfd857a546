"""Which results of operations somebody reads."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
from nki.advice.reads import TensorUses, same_view, sums_rows
from nki.ir.begins import begun_by
from nki.ir.nodes import Op


def traced(function) -> tuple[TensorUses, list[Op]]:
    kernel = nki.jit(function).trace(nki.TensorSpec((128, 8), nl.float32))
    (nodes,) = kernel.bodies
    return TensorUses(kernel, nodes), nodes


def numbers(nodes: list[Op], row: str) -> list[int]:
    return [at for at, node in enumerate(nodes) if node.row.name == row]


def test_results_that_are_overwritten_are_dead() -> None:
    def kernel(a):
        tile = nl.load(a)
        other = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=other, src=tile)
        nisa.tensor_scalar(dst=tile, data=other, op0=nl.add, operand0=1.0)  # reads other, last
        nisa.tensor_copy(dst=tile, src=other)
        nl.store(a, tile)

    uses, nodes = traced(kernel)
    first, second = numbers(nodes, "tensor_copy")
    (scaled,) = numbers(nodes, "tensor_scalar")
    other = nodes[first].fields["dst"]
    tile = nodes[scaled].fields["dst"]
    assert uses.is_unread(scaled, tile.storage, tile)  # the copy fills it without reading it
    assert not uses.is_unread(scaled, other.storage, other)
    assert uses.is_unread(second, other.storage, other)
    assert uses.after(first, other.storage) == [scaled, second]


def test_views_are_the_same_by_elements_not_by_identity() -> None:
    def kernel(a):
        tile = nl.load(a)
        nisa.tensor_copy(dst=tile[:, 0:4], src=tile[:, 4:8])
        nisa.tensor_copy(dst=tile[:, 0:4], src=tile[:, 0:4])

    _, nodes = traced(kernel)
    one, two = (nodes[at].fields for at in numbers(nodes, "tensor_copy"))
    assert same_view(one["dst"], two["dst"]) and same_view(two["dst"], two["src"])
    assert not same_view(one["src"], one["dst"]) and not same_view(1.0, one["dst"])


def test_sums_of_whole_rows() -> None:
    def kernel(a):
        tile = nl.load(a).reshape((128, 2, 4))
        inner = nl.ndarray((128, 2), dtype=nl.float32, buffer=nl.sbuf)
        whole = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=inner, op=nl.add, data=tile, axis=2)
        nisa.tensor_reduce(dst=whole, op=nl.add, data=tile, axis=(1, 2))
        nisa.tensor_reduce(dst=whole, op=nl.maximum, data=tile, axis=(1, 2))

    _, nodes = traced(kernel)
    found = [sums_rows(nodes[at].fields) for at in numbers(nodes, "tensor_reduce")]
    assert found == [False, True, False]
    assert all(begun_by(nodes[at]) is None for at in numbers(nodes, "tensor_reduce"))
