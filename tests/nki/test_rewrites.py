"""What passes and advice ask of operations, and kernels with other nodes."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
from nki.ir.nodes import operations
from nki.transformations.rewrites import is_whole, rewritten, transfer, writers


def kernel(a, b):
    left, right = nl.load(a), nl.load(b[:, 0:4])
    nisa.tensor_copy(dst=left[:, 0:4], src=right)
    nl.store(a, left)


KERNEL = nki.jit(kernel).trace(*[nki.TensorSpec((128, 8), nl.float32)] * 2)
OPS = [op for op in operations(KERNEL.bodies[0]) if op.row.name != "storage_begin"]


def test_transfers_know_their_sides() -> None:
    first, second, copy, last = OPS
    loads = [transfer(op, KERNEL) for op in (first, second)]
    assert all(one is not None and one.is_load and one.is_copy for one in loads)
    assert loads[1].hbm.storage.name == "b" and loads[1].chip.shape == (128, 4)
    stored = transfer(last, KERNEL)
    assert stored is not None and not stored.is_load and stored.hbm.storage.name == "a"
    assert transfer(copy, KERNEL) is None


def test_whole_views() -> None:
    first, _, copy, _ = OPS
    assert is_whole(first.fields["dst"]) and not is_whole(copy.fields["dst"])
    assert is_whole(copy.fields["src"])


def test_who_writes_a_tensor() -> None:
    first, second, copy, last = OPS
    found = writers(KERNEL)
    assert found[first.fields["dst"].storage] == [first, copy]
    assert found[second.fields["dst"].storage] == [second]
    assert found[last.fields["dst"].storage] == [last]


def test_a_kernel_is_rewritten_only_where_something_changes() -> None:
    assert rewritten(KERNEL, lambda nodes, numbering: None) is None
    without = rewritten(
        KERNEL, lambda nodes, numbering: [n for n in nodes if n.row.name != "tensor_copy"]
    )
    assert without is not None
    names = [op.row.name for op in operations(without.bodies[0])]
    assert "tensor_copy" not in names and len(names) == len(KERNEL.bodies[0]) - 1
