"""What operations must follow before tensors have places."""

import pytest
from traced import loops, sbuf, traced

import nki.isa as nisa
import nki.language as nl
from isa.enums import Memory
from isa.target import TARGETS
from nki.ir.begins import begun
from nki.ir.builder.builder import Builder
from nki.ir.nodes import Op
from nki.ir.views.indexing import ds
from nki.passes.order.precedence import Precedence
from nki.passes.order.rotate import RotateBuffers


def followed(write):
    """By operation, storage markers apart, those that it must follow itself."""
    b = Builder("trn2", name="made_up")
    write(b)
    nodes = b.kernel().bodies[0]
    operations = [op for op in nodes if isinstance(op, Op) and op.row.name != "storage_begin"]
    starts, values = Precedence(operations, TARGETS["trn2"], frozenset()).before
    return [values[starts[n] : starts[n + 1]].tolist() for n in range(len(operations))]


def tiles(b, *names, **more):
    return [b.tensor((4, 8), "float32", Memory.sbuf, name, **more) for name in names]


def test_a_read_follows_the_last_write_and_a_write_the_reads():
    def write(b):
        x, y = tiles(b, "x", "y")
        b.emit("memset", dst=x, value=0.0)
        b.emit("memset", dst=x, value=1.0)
        b.emit("tensor_copy", dst=y, src=x)
        b.emit("memset", dst=x, value=2.0)

    assert followed(write) == [[], [0], [1], [1, 2]]


def test_tensors_have_nothing_to_do_with_each_other():
    def write(b):
        for tile in tiles(b, "x", "y", "z"):
            b.emit("memset", dst=tile, value=0.0)

    assert followed(write) == [[], [], []]


def test_tensors_at_addresses_stay_in_order():
    def write(b):
        (x,), (y,) = tiles(b, "x", address=(0, 0)), tiles(b, "y", address=(0, 64))
        b.emit("memset", dst=x, value=0.0)
        b.emit("memset", dst=y, value=0.0)

    assert followed(write) == [[], [0]]


def test_what_mentions_a_register_follows_who_wrote_it_and_a_new_value_all_that_did():
    def write(b):
        (x,) = tiles(b, "x")
        register = b.register(3)
        for row in (0, 1):
            b.emit("memset", dst=x[row : row + 1, ds(register, 1)], value=0.0)
        b.emit("register_move", dst=register, src=5)
        b.emit("memset", dst=x[2:3, ds(register, 1)], value=0.0)

    assert followed(write) == [[], [0], [0], [0, 1, 2], [3]]


@pytest.mark.parametrize("ordered", [False, True])
def test_the_authors_word_counts(ordered):
    def write(b):
        x, y = tiles(b, "x", "y")
        if ordered:
            with b.in_order():
                b.emit("memset", dst=x, value=0.0)
                b.emit("memset", dst=y, value=0.0)
        else:
            b.emit("memset", dst=x, value=0.0)
            b.emit("memset", dst=y, value=0.0)

    assert followed(write) == [[], [0] if ordered else []]


def in_rotated(change):
    """What all operations of a rotated loop must follow, and what must follow them, as found from
    its copies and from all operations; and whether one copy was enough. `change` does something
    with a tile between its load and its store."""

    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        total = sbuf(128, 64)
        nisa.memset(dst=total, value=0.0)

        def tile(row):
            x = sbuf(128, 64)
            nisa.dma_copy(dst=x, src=a[nl.ds(row, 128), :64])
            for _ in range(20):
                nisa.activation(dst=x, op=nl.square, data=x)
            change(lambda ahead: out[ahead : ahead + 2048][nl.ds(row, 128), :64], x, total)
            nisa.dma_copy(dst=out[256:][nl.ds(row, 128), :64], src=x)

        nl.fori_loop(0, 2048, tile, 128)
        return out

    (loop,) = loops(RotateBuffers().run(traced(kernel, (2304, 64))).bodies[0])
    assert loop.copies > 2
    operations = [op for op in loop.body if op.row.name != "storage_begin"]
    facts = operations, TARGETS["trn2"], frozenset({loop.variable})
    found = Precedence.of_copies(*facts, loop, begun(loop.body))
    orders = [
        [column.tolist() for lists in (one.before, one.after) for column in lists]
        for one in (found, Precedence(*facts))
    ]
    return *orders, found.body.operations.size <= len(operations) // 2


@pytest.mark.parametrize(
    ("change", "alone"),
    [
        (lambda rows, x, total: None, True),
        (lambda rows, x, total: nisa.tensor_tensor(x, x, total, op=nl.add), True),
        (lambda rows, x, total: nisa.tensor_tensor(total, x, total, op=nl.add), False),
        (lambda rows, x, total: nisa.dma_copy(dst=x, src=rows(256)), True),
        (lambda rows, x, total: nisa.dma_copy(dst=x, src=rows(128)), False),
        (lambda rows, x, total: nisa.dma_copy(dst=x, src=rows(0)), False),
        (lambda rows, x, total: nisa.dma_copy(dst=rows(0), src=x), False),
    ],
)
def test_copies_that_share_nothing_they_write_have_the_order_of_one(change, alone):
    found, all_of_them, one_is_enough = in_rotated(change)
    assert found == all_of_them
    assert one_is_enough is alone
