"""Tensors in shared HBM that cores of a traced kernel pair, and their results."""

import numpy as np
from traced import operations, refused, sbuf, traced, value

import nki.isa as nisa
import nki.language as nl
from isa.enums import Memory


def test_cores_share_tensors_by_order_or_name():
    def kernel(a):
        core = nl.program_id(0)
        names = ["x", "y"] if core == 0 else ["y", "x"]
        first = nl.ndarray((4, 8), nl.float32, nl.shared_hbm)
        named = {n: nl.ndarray((4, len(n) + 1), nl.float32, nl.shared_hbm, name=n) for n in names}
        private = nl.ndarray((4, 8), nl.float32, nl.private_hbm)
        table = nl.shared_constant(np.arange(6, dtype=np.int32).reshape(2, 3))
        tile = sbuf(4, 8)
        nisa.memset(dst=tile, value=float(core))
        nisa.dma_copy(dst=first, src=tile)
        nisa.dma_copy(dst=private, src=tile)
        assert table.shape == (2, 3)
        return first, named["x"], named["y"]

    kernel = traced(kernel, (4, 8), cores=2)
    assert kernel.parameters[0].memory is Memory.shared_hbm
    stores = [operations(kernel, "dma_copy", core) for core in (0, 1)]
    assert value(stores[0][0], "dst").storage is value(stores[1][0], "dst").storage
    assert value(stores[0][1], "dst").storage is not value(stores[1][1], "dst").storage
    assert [t.name for t in kernel.results] == ["first", "x", "y"]
    constants = [t for t in kernel.tensors if t.role == "constant"]
    assert len(constants) == 1 and constants[0].data.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_cores_that_do_not_agree():
    def shared(*shape):
        return nl.ndarray(shape, nl.float32, nl.shared_hbm)

    def other_shape(a):
        return shared(4, 8 + nl.program_id(0))

    def one_missing(a):
        return next(reversed([shared(4, 8) for _ in range(2 - nl.program_id(0))]))

    def other_result(a):
        tensors = [shared(4, 8), shared(4, 8)]
        return tensors[nl.program_id(0)]

    def private(a):
        return nl.ndarray((4, 8), nl.float32, nl.private_hbm)

    for body in (other_shape, one_missing, other_result, private):
        refused("core-mismatch", body, (4, 8), cores=2)
