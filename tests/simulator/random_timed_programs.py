"""Random programs for tests of the timing model: instructions in order, and their semaphores."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from hypothesis import strategies as st
from timing_programs import Builder, hbm, psum, sbuf

from isa.alu import ACTIVATIONS, ALU
from isa.array_tiles import WHOLE_ARRAY, ArrayTile
from isa.enums import DgeMode, Engine, ReduceCommand
from isa.machine import control, elementwise, gpsimd, scalar, tensor
from simulator.timing.assumptions import Assumptions

PE, DVE, ACT, POOL, SP = (
    Engine.tensor,
    Engine.vector,
    Engine.scalar,
    Engine.gpsimd,
    Engine.sync,
)


def activate(b, columns, function, **semaphores):
    b.add(
        scalar.Activate, ACT, sbuf(columns), sbuf(columns), ACTIVATIONS[function], None, 1.0,
        ReduceCommand.idle, **semaphores,
    )  # fmt: skip


def add(b, engine, columns, **semaphores):
    a = sbuf(columns, "bfloat16")
    b.add(elementwise.TensorTensor, engine, a, a, a, ALU["add"], **semaphores)


PARTS = ArrayTile(0, 0, 64, 128), ArrayTile(64, 0, 32, 128), ArrayTile(0, 32, 128, 32)
"""The second is apart from the first, the third from neither."""


def product_in(part, b, n, f, kw):
    b.add(tensor.LoadStationary, PE, sbuf(32), part)
    b.add(tensor.MultiplyMoving, PE, psum(n), sbuf(n), True, part, **kw)


KINDS = {
    "vector": lambda b, n, f, kw: add(b, DVE, n, **kw),
    "gpsimd": lambda b, n, f, kw: add(b, POOL, n, **kw),
    "copy": lambda b, n, f, kw: b.add(elementwise.TensorCopy, DVE, sbuf(n), psum(n), **kw),
    "iota": lambda b, n, f, kw: b.add(
        gpsimd.Iota, POOL, sbuf(n, "int32", offset=4096), ((1, n),), 0, 1, **kw
    ),
    "scalar": lambda b, n, f, kw: activate(b, n, f, **kw),
    "load": lambda b, n, f, kw: b.load(sbuf(n), hbm(128, n, 4096), mode=DgeMode.none, **kw),
    "column": lambda b, n, f, kw: b.load(
        sbuf(n, partitions=8), hbm(8, n, 4096), mode=DgeMode.none, **kw
    ),
    "store": lambda b, n, f, kw: b.load(
        hbm(128, n, 4096), sbuf(n), mode=DgeMode.none, engine=POOL, **kw
    ),
    "tile": lambda b, n, f, kw: b.add(tensor.LoadStationary, PE, sbuf(128), WHOLE_ARRAY, **kw),
    "product": lambda b, n, f, kw: b.add(
        tensor.MultiplyMoving, PE, psum(n), sbuf(n), True, WHOLE_ARRAY, **kw
    ),
    **{f"product in {part.name}": partial(product_in, part) for part in PARTS},
    "nop": lambda b, n, f, kw: b.add(control.Nop, SP, **kw),
}


@st.composite
def graphs(draw):
    """Instructions in one order, and edges from earlier to later ones, each a semaphore."""
    nodes = draw(
        st.lists(
            st.tuples(
                st.sampled_from(sorted(KINDS)),
                st.sampled_from([8, 64, 256, 512]),
                st.sampled_from(["exp", "gelu", "copy"]),
            ),
            min_size=1,
            max_size=24,
        )
    )
    pairs = st.tuples(st.integers(0, len(nodes) - 1), st.integers(0, len(nodes) - 1))
    edges = draw(st.lists(pairs.filter(lambda pair: pair[0] < pair[1]), max_size=30, unique=True))
    return draw(st.sampled_from(["trn1", "trn2", "trn3"])), nodes, edges


def built(graph, without=None):
    target, nodes, edges = graph
    b = Builder(target)
    for index, (kind, columns, function) in enumerate(nodes):
        used = [(number, edge) for number, edge in enumerate(edges) if number != without]
        waits = [(number, 1) for number, edge in used if edge[1] == index]
        updates = [(number, 1) for number, edge in used if edge[0] == index]
        KINDS[kind](b, columns, function, {"waits": waits, "updates": updates})
    return b.program()


ALONE = replace(Assumptions.of(throttle_window_ns=0.0), ports_apart=True, dma_apart=True)
"""Throttling and arbitration off: then later work never takes what earlier work waits for."""


NO_MORE = 1 + 1e-9
