"""Software pipelining: what may come earlier, what fits, and that it pays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_list_schedule import listed
from traced import psum, sbuf, traced

import nki
import nki.isa as nisa
import nki.language as nl
from isa.operations.control import StorageBegin
from isa.target import TARGETS
from nki.ir.begins import begun
from nki.ir.nodes import Op, storages
from nki.passes.analysis.content import forget
from nki.passes.order import pipeline
from nki.passes.order.list_schedule import StretchTensors
from nki.passes.order.movable import Movable
from nki.passes.order.pipeline import Pipeline
from nki.passes.order.precedence import Precedence
from simulator.races.happens_before import check
from simulator.timing import simulate

P = 128
TRN2 = TARGETS["trn2"]
RNG = np.random.default_rng(0)


def attention(q, k, v, out=None):
    """softmax(q.T @ k) @ v with true maxima, tile by tile: stages on three engines."""
    d, length = q.shape
    if out is None:
        out = nl.ndarray((length, d), dtype=q.dtype, buffer=nl.shared_hbm)
    keys, values = sbuf(d, length, dtype=k.dtype), sbuf(P, length // P, d, dtype=v.dtype)
    nisa.dma_copy(dst=keys, src=k)
    for block in range(length // P):
        nisa.dma_copy(dst=values[:, block, :], src=v[nl.ds(block * P, P), :])
    for row in range(0, length, P):
        query, scores = sbuf(d, P, dtype=q.dtype), sbuf(P, length, dtype=q.dtype)
        low, total = sbuf(P, 1), sbuf(P, 1)
        nisa.dma_copy(dst=query, src=q[:, nl.ds(row, P)])
        for start in range(0, length, 512):
            product = psum(P, 512)
            nisa.nc_matmul(dst=product, stationary=query, moving=keys[:, nl.ds(start, 512)])
            nisa.tensor_copy(dst=scores[:, nl.ds(start, 512)], src=product)
        nisa.tensor_reduce(dst=low, op=nl.maximum, data=scores, axis=1, negate=True)
        weights = sbuf(P, length, dtype=q.dtype)
        nisa.activation_reduce(
            dst=weights, op=nl.exp, data=scores, bias=low, reduce_op=nl.add, reduce_res=total
        )
        result = psum(P, d)
        for block in range(length // P):
            turned = nl.ndarray((P, P), dtype=q.dtype, buffer=nl.psum)
            tile = sbuf(P, P, dtype=q.dtype)
            nisa.nc_transpose(dst=turned, data=weights[:, nl.ds(block * P, P)])
            nisa.tensor_copy(dst=tile, src=turned)
            nisa.nc_matmul(dst=result, stationary=tile, moving=values[:, block, :])
        final = sbuf(P, d, dtype=q.dtype)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=final, data=result, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[nl.ds(row, P), :], src=final)
    return out


SPECS = [nki.TensorSpec(shape, nl.bfloat16) for shape in ((P, 1024), (P, 1024), (1024, P))]


def compiled(kernel, *arguments):
    return nki.compile(nki.jit(kernel), *arguments, target="trn2")


def test_iterations_of_straight_code_overlap(monkeypatch):
    pipelined = compiled(attention, *SPECS).program
    monkeypatch.setattr(pipeline, "GAIN", 0.0)  # nothing is that much faster
    kept = compiled(attention, *SPECS).program
    assert check(pipelined) == []
    assert simulate(pipelined).total_ns < 0.8 * simulate(kept).total_ns


def busy_then_attention(q, k, v):
    """In each trip of a loop one engine is busy first, without an end; then stages of three engines
    come, tile by tile."""
    out = nl.ndarray((4, q.shape[1], q.shape[0]), dtype=q.dtype, buffer=nl.shared_hbm)
    for trip in nl.dynamic_range(4):
        number = sbuf(P, 512)
        nisa.memset(dst=number, value=0)
        for _ in range(96):
            other = sbuf(P, 512)
            nisa.tensor_scalar(dst=other, data=number, op0=nl.add, operand0=1.0)
            number = other
        attention(q, k, v, out[trip])
    return out


def test_each_part_of_a_long_loop_has_an_order_of_its_own(monkeypatch):
    """The beginning of the body cannot be faster in another order, a part behind it can."""
    monkeypatch.setattr(pipeline, "SAMPLE", 128)
    monkeypatch.setattr(pipeline, "PIECE", 256)
    found = compiled(busy_then_attention, *SPECS).program
    monkeypatch.setattr(pipeline, "PIECE", 1 << 20)  # the beginning is all that is looked at
    beginning = compiled(busy_then_attention, *SPECS).program
    assert check(found) == []
    assert simulate(found).total_ns < 0.8 * simulate(beginning).total_ns


def test_products_come_apart_where_that_is_faster(monkeypatch):
    """The order in which they follow one another at once is not the only one that is timed."""
    tried = []
    spaced = pipeline._PipelinedBody._spaced

    def at_once(body, stretch, order, spent):
        tried.append(spaced(body, stretch, order, spent))
        return order

    specs = [nki.TensorSpec(shape, nl.bfloat16) for shape in ((P, 4096), (P, 4096), (4096, P))]
    forget()
    best = simulate(compiled(attention, *specs).program).total_ns
    forget()
    monkeypatch.setattr(pipeline._PipelinedBody, "_spaced", at_once)
    assert best < 0.98 * simulate(compiled(attention, *specs).program).total_ns
    assert any(order.spaced for order in tried)
    forget()


def test_the_authors_order_stays_where_nothing_is_faster(monkeypatch):
    traced_ = traced(lambda q, k, v: attention(q, k, v), (P, 512), (P, 512), (512, P))
    assert Pipeline().run(traced_) is not traced_
    monkeypatch.setattr(pipeline, "GAIN", 0.0)
    assert Pipeline().run(traced_) is traced_


def names(kernel):
    return [op.name for op in kernel.bodies[0] if isinstance(op, Op) and op.name]


def two_stages(a, keep=False):
    for n in range(4):
        x, y, z = sbuf(P, 512), sbuf(P, 512), sbuf(P, 512)
        nisa.dma_copy(dst=x, src=a[nl.ds(n * P, P), :], name=f"load{n}")
        for step in range(3):
            nisa.activation(dst=y, op=nl.square, data=x if step == 0 else y, name=f"first{n}{step}")
            nisa.tensor_scalar(dst=y, data=y, op0=nl.add, operand0=1.0, name=f"then{n}{step}")
        nisa.tensor_copy(dst=z, src=y)
        nisa.dma_copy(dst=a[nl.ds(n * P, P), :], src=z, name=f"store{n}")


def test_stages_of_the_next_iteration_come_earlier(monkeypatch):
    """Before: first00 then00 first01 then01 first02 then02 ... first10; after: first10 when its
    tile is there, while then01 runs."""
    monkeypatch.setattr(pipeline, "GAIN", 2.0)
    monkeypatch.setattr(pipeline, "BOUND", 0.0)
    monkeypatch.setattr(pipeline, "WINDOW", 1)
    kernel = traced(two_stages, (4 * P, 512))
    author, order = names(kernel), names(Pipeline().run(kernel))
    assert sorted(order) == sorted(author)
    assert author.index("then02") < author.index("first10")
    assert order.index("first10") < order.index("then02")


def test_what_fits_at_once_is_left_to_the_scheduler(monkeypatch):
    """Where nothing waits for a place, an order before places can give nothing."""
    monkeypatch.setattr(pipeline, "GAIN", 2.0)
    monkeypatch.setattr(pipeline, "BOUND", 0.0)
    asked = []
    monkeypatch.setattr(pipeline, "modelled_ns", lambda *_: asked.append(1))
    kernel = traced(two_stages, (4 * P, 512))
    assert Pipeline().run(kernel) is kernel
    assert not asked
    capacity = TRN2.sbuf_bytes_per_partition.value

    def large(a):
        held = nl.ndarray((P, capacity - 4096), dtype=nl.uint8, buffer=nl.sbuf)
        nisa.memset(dst=held, value=0)
        two_stages(a)
        nisa.dma_copy(dst=a[0:P, 0:1], src=held[:, 0:4].view(nl.float32))

    Pipeline().run(traced(large, (4 * P, 512)))
    assert asked


def test_orders_as_good_as_the_schedulers_are_not_timed(monkeypatch):
    """Twenty tiles at once, each through ten operations: the scheduler mixes them by itself, so
    that the time is that of the order which is found before there are places."""

    def chains(a, out):
        for row in range(0, a.shape[0], P):
            x, y = sbuf(P, a.shape[1]), sbuf(P, a.shape[1])
            nisa.dma_copy(dst=x, src=a[row : row + P, :])
            for _ in range(4):
                nisa.activation(dst=y, op=nl.square, data=x)
                nisa.tensor_scalar(dst=x, data=y, op0=nl.add, operand0=1.0)
            nisa.dma_copy(dst=out[row : row + P, :], src=x)

    timed = pipeline.modelled_ns
    asked = []
    monkeypatch.setattr(pipeline, "modelled_ns", lambda *of: asked.append(1) or timed(*of))
    kernel = traced(chains, (20 * P, 64), (20 * P, 64))
    assert Pipeline().run(kernel) is kernel
    assert not asked
    body = list(kernel.bodies[0])
    stretch = pipeline._PipelinedBody(kernel, body)
    operations = [op for op in body if op.row is not StorageBegin]
    movable = Movable(stretch.live, operations, begun(body), 1, frozenset(), None)
    assert len(operations) > pipeline.WINDOW
    assert timed(kernel, movable.modelled(movable.orders[0].numbers)) >= pipeline.GAIN * timed(
        kernel, body
    )


def test_where_all_fits_at_once_places_make_no_difference(monkeypatch):
    """The order is that of a list schedule that asks for places, and smaller windows that do not
    stop it have the same one."""

    def chains(a, count=8, links=24):
        out = nl.ndarray((count, *a.shape), dtype=a.dtype, buffer=nl.shared_hbm)
        for number in range(count):
            x, y = sbuf(P, a.shape[1]), sbuf(P, a.shape[1])
            nisa.dma_copy(dst=x, src=a)
            for _ in range(links):
                nisa.activation(dst=y, op=nl.square, data=x)
                nisa.tensor_scalar(dst=x, data=y, op0=nl.add, operand0=float(number))
            nisa.dma_copy(dst=out[number], src=x)
        return out

    found = {}
    stretches = []
    order = Movable.order

    def observed(self, window, spaced=False):
        stretches.append(self)
        return order(self, window, spaced)

    monkeypatch.setattr(Movable, "order", observed)
    Pipeline().run(traced(chains, (P, 64)))
    stretch = stretches[0]
    assert not stretch.waits_for_places
    for window in (1024, 512, 300, 128, 32):
        found[window] = order(stretch, window)
    stretch.waits_for_places = True
    listed = {window: stretch._listed(window, False) for window in found}
    assert listed == found
    assert found[1024].numbers == found[512].numbers != found[32].numbers


def test_no_reorder_is_kept(monkeypatch):
    monkeypatch.setattr(pipeline, "WINDOW", 1)

    def kernel(a):
        with nl.no_reorder():
            two_stages(a)

    kernel = traced(kernel, (4 * P, 512))
    assert names(Pipeline().run(kernel)) == names(kernel)


def random_kernel(a, choices):
    """Operations on a few tiles that are used, overwritten and begun anew, in SBUF and PSUM."""
    out = nl.ndarray((P, 16), dtype=nl.float32, buffer=nl.shared_hbm)
    live = [nl.load(a), nl.load(a)]
    for kind, one, other in choices:
        x, y = live[one % len(live)], live[other % len(live)]
        if kind == 0:
            nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.maximum)
        elif kind == 1:
            live[other % len(live)] = new = sbuf(P, 16)
            nisa.tensor_scalar(dst=new, data=x, op0=nl.add, operand0=1.0)
        elif kind == 2:
            total, new = psum(16, 16), sbuf(P, 16)
            nisa.nc_matmul(dst=total, stationary=x, moving=y)
            nisa.nc_matmul(dst=total, stationary=y, moving=y)
            nisa.memset(dst=new, value=0.25)
            nisa.activation(dst=new[0:16, :], op=nl.tanh, data=total, scale=0.125)
            live[one % len(live)] = new
        elif kind == 3:
            nisa.dma_copy(dst=out, src=x)
            live.append(nl.load(out))
        else:
            nisa.tensor_copy(dst=x[:, 4:8], src=y[:, 0:4], engine=nisa.engine.scalar)
    nisa.dma_copy(dst=out, src=live[0])
    return out


OPERATIONS = st.tuples(st.integers(0, 4), st.integers(0, 7), st.integers(0, 7))


@settings(max_examples=25, deadline=None)
@given(st.lists(OPERATIONS, min_size=4, max_size=30))
def test_other_orders_give_the_same_bits(choices):
    """Whether they pay or not."""
    a = RNG.standard_normal((P, 16), dtype=np.float32)

    def kernel(a):
        return random_kernel(a, choices)

    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("GAIN", 9.0), ("BOUND", 0.0), ("FEW", 2), ("WINDOW", 1)):
            patch.setattr(pipeline, name, value)
        device = compiled(kernel, a)
        assert check(device.program) == []
        expected = nki.simulate(nki.jit(kernel, platform_target="trn2"), mode="reference")(a)
        np.testing.assert_array_equal(device(a), expected)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_nothing_live_exceeds_its_memory(data):
    """By brute force: walk the order, with tensors of any size that end with their last use."""
    choices = data.draw(st.lists(OPERATIONS, min_size=4, max_size=24))
    kernel = traced(lambda a: random_kernel(a, choices), (P, 16))
    operations = [op for op in kernel.bodies[0] if op.row is not StorageBegin]
    graph = Precedence(operations, TRN2, frozenset())
    timings, which = pipeline._PipelinedBody(kernel, kernel.bodies[0]).costs.of(graph.body)
    numbers: dict = {}
    of = [
        [numbers.setdefault(t, len(numbers)) for t in dict.fromkeys(storages(op.values)) if t.pitch]
        for op in operations
    ]
    users = [[n for n, own in enumerate(of) if tensor in own] for tensor in range(len(numbers))]
    sizes = [data.draw(st.integers(1, 9)) for _ in users]
    load = [
        sum(size for size, own in zip(sizes, users) if own[0] <= n <= own[-1])
        for n in range(len(operations))
    ]
    capacity = max(load) + data.draw(st.integers(0, 6))
    rows = [(0, size, own[0], own[-1]) for size, own in zip(sizes, users)]
    room = np.array([load]), np.array([capacity]), np.array([0])
    order, _ = listed(
        [timings[n] for n in which.tolist()],
        graph.before,
        graph.after,
        StretchTensors.of(of, rows, *room),
        data.draw(st.sampled_from([2, 8, 64])),
    )
    place = np.argsort(order)
    assert sorted(order) == list(range(len(operations)))
    for n, (start, end) in enumerate(zip(graph.before.starts, graph.before.starts[1:])):
        assert all(place[one] < place[n] for one in graph.before.values[start:end])
    for at in range(len(order)):
        live = [
            size
            for size, own in zip(sizes, users)
            if min(place[n] for n in own) <= at <= max(place[n] for n in own)
        ]
        assert sum(live) <= capacity
