"""What makes lists of nodes alike, and results that are kept for those that are."""

import nki
import nki.isa as nisa
import nki.language as nl
from nki.ir.nodes import Op
from nki.passes.analysis import content
from nki.passes.analysis.content import Content

A = nki.TensorSpec((256, 64), nl.float32)


def square(a, out, first=0, factor=1.0, size=64):
    x = nl.ndarray((128, size), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=a[nl.ds(first, 128), :size])
    nisa.activation(dst=x, op=nl.square, data=x, scale=factor)
    nisa.dma_copy(dst=out[nl.ds(first, 128), :size], src=x)


def traced(body):
    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        body(a, out)
        return out

    return kernel.trace(A, target="trn2").bodies[0]


def parts(body, count=2):
    """The nodes of a body in pieces of one length."""
    nodes = traced(body)
    length = len(nodes) // count
    return [nodes[at * length : (at + 1) * length] for at in range(count)]


def same(one, other, **options):
    return Content(**options).of(one) == Content(**options).of(other)


def test_pieces_that_differ_in_places_in_hbm_are_alike():
    def body(a, out):
        square(a, out, 0)
        square(a, out, 128)

    one, other = parts(body)
    assert same(one, other)
    assert not same(one, other[:-1])
    assert same(one, one, located=True)


def test_pieces_from_other_lines_are_alike_but_for_their_lines():
    one, other = (
        traced(lambda a, out: square(a, out, 0)),
        traced(lambda a, out: square(a, out, 128)),
    )
    assert same(one, other)
    first, then = Content(), Content()
    assert first.of(one) == then.of(other)
    assert [*first.lowest.values()] == [0, 0]
    assert [*then.lowest.values()] == [128 * 64 * 4] * 2


def test_values_sizes_and_tensors_make_a_difference():
    plain = traced(square)
    assert same(plain, traced(square))
    assert not same(plain, traced(lambda a, out: square(a, out, factor=2.0)))
    assert not same(plain, traced(lambda a, out: square(a, out, size=32)))
    zero, minus = (traced(lambda a, out, f=f: square(a, out, factor=f)) for f in (0.0, -0.0))
    assert not same(zero, minus)

    def two_tiles(a, out):
        x, y = (nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.sbuf) for _ in range(2))
        for source, target in ((x, y), (y, x)):
            nisa.tensor_copy(dst=target, src=source)

    def one_tile_twice(a, out):
        x, y = (nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.sbuf) for _ in range(2))
        for source, target in ((x, y), (x, y)):
            nisa.tensor_copy(dst=target, src=source)

    assert not same(traced(two_tiles), traced(one_tile_twice))


def test_distances_make_a_difference():
    def apart(*firsts):
        return traced(lambda a, out: [square(a, out, first) for first in firsts])

    assert not same(apart(0, 128), apart(128, 0))
    assert not same(apart(0, 0), apart(0, 128))


def test_loops_are_told_by_their_length_and_what_their_variables_do():
    def loop(lower, upper, used=False):
        def body(a, out):
            register = nisa.register_alloc(0)

            def each(row):
                if used:
                    nisa.register_move(register, row)
                square(a, out, row)

            nl.fori_loop(lower, upper, each, 64)

        return traced(body)

    assert same(loop(0, 128), loop(64, 192))
    assert not same(loop(0, 128), loop(0, 64))
    assert not same(loop(0, 128, True), loop(64, 192, True))
    assert same(loop(0, 128, True), loop(0, 128, True))


def test_orders_by_the_authors_word_make_a_difference():
    nodes = traced(square)
    last = nodes[-1]
    assert isinstance(last, Op)
    ordered = [*nodes[:-1], Op(last.row, last.values, last.location, None, (nodes[1],))]
    assert not same(nodes, ordered)


def test_answers_are_kept_until_they_are_forgotten(monkeypatch):
    monkeypatch.setattr(content, "KEPT", 2)
    asked = []

    def answer(key):
        return content.kept("a question of a test", key, lambda: asked.append(key))

    for key in (1, 1, 2, 2, 1):
        answer(key)
    assert asked == [1, 2]
    answer(3)  # no room: all go
    answer(1)
    assert asked == [1, 2, 3, 1]
    content.forget()
    answer(1)
    assert asked == [1, 2, 3, 1, 1]
