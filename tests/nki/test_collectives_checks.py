"""Limits that the page of `nki.collectives` states, with calls that break them."""

import numpy as np
import pytest

import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl

RANKS = 4
GROUP = ncc.ReplicaGroup([[0, 1, 2, 3]])
OVERLAPPING = [[0, 1], [1, 2], [3]]


def sbuf(*shape, dtype="float32"):
    tile = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
    nisa.memset(tile, value=0)
    return tile


def psum(*shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)


def table(rows=3, columns=RANKS, dtype="uint32"):
    """A metadata tensor of zeros."""
    made = nl.ndarray((rows, columns), dtype=dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=made, src=sbuf(rows, columns, dtype=dtype))
    return made


def run(body, target, shape=(32, 3), cores=1):
    """body(src [8, 3], dst) on four ranks."""

    def kernel():
        src = nl.ndarray((8, 3), dtype=nl.float32, buffer=nl.shared_hbm)
        dst = nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=src, src=sbuf(8, 3))
        nisa.dma_copy(dst=dst, src=sbuf(*shape))
        body(src, dst)
        return dst

    return ncc.simulate_ranks(nki.jit(kernel, platform_target=target)[cores], [{}] * RANKS)


# fmt: off
LIMITS = {
    # name: (target, code of the refusal, call)
    "all_reduce in PSUM": ("trn3", "wrong-memory",
        lambda s, d: ncc.all_reduce([psum(8, 3)], [psum(8, 3)], GROUP, nl.add)),
    "all_reduce of HBM into SBUF": ("trn3", "wrong-memory",
        lambda s, d: ncc.all_reduce([s], [sbuf(8, 3)], GROUP, nl.add)),
    "all_reduce of two tiles": ("trn3", "wrong-memory",
        lambda s, d: ncc.all_reduce([sbuf(8, 3)] * 2, [sbuf(8, 3)] * 2, GROUP, nl.add)),
    "all_reduce operator": ("trn3", "operator-not-allowed",
        lambda s, d: ncc.all_reduce([s], [s], GROUP, nl.multiply)),
    "all_reduce priority": ("trn3", "value-not-allowed",
        lambda s, d: ncc.all_reduce([s], [s], GROUP, nl.add, priority=4)),
    "all_reduce priority on trn2": ("trn2", "generation",
        lambda s, d: ncc.all_reduce([s], [s], GROUP, nl.add, priority=0)),
    "all_gather dimension": ("trn3", "value-not-allowed",
        lambda s, d: ncc.all_gather([s], [d], GROUP, 1)),
    "all_gather dimension in SBUF": ("trn3", "shape-mismatch",
        lambda s, d: ncc.all_gather([sbuf(8, 3, 1)], [sbuf(8, 12, 1)], GROUP, 1)),
    "reduce_scatter dimension": ("trn3", "value-not-allowed",
        lambda s, d: ncc.reduce_scatter([s], [d], GROUP, 1, nl.add)),
    "reduce_scatter dimension in SBUF": ("trn3", "value-not-allowed",
        lambda s, d: ncc.reduce_scatter([sbuf(8, 4)], [sbuf(8, 1)], GROUP, 1, nl.add)),
    "reduce_scatter operator": ("trn3", "operator-not-allowed",
        lambda s, d: ncc.reduce_scatter([s], [d], GROUP, 0, nl.subtract)),
    "all_to_all dimension": ("trn3", "value-not-allowed",
        lambda s, d: ncc.all_to_all([s], [d], GROUP, 1)),
    "all_to_all in SBUF": ("trn3", "wrong-memory",
        lambda s, d: ncc.all_to_all([sbuf(8, 3)], [sbuf(8, 3)], GROUP, 0)),
    "all_to_all_v of two": ("trn3", "value-not-allowed",
        lambda s, d: ncc.all_to_all_v([s, s], [d, d], GROUP, table())),
    "all_to_all_v in SBUF": ("trn3", "wrong-memory",
        lambda s, d: ncc.all_to_all_v([sbuf(8, 3)], [sbuf(8, 3)], GROUP, table())),
    "all_to_all_v metadata type": ("trn3", "shape-mismatch",
        lambda s, d: ncc.all_to_all_v([s], [d], GROUP, table(dtype="int32"))),
    "all_to_all_v metadata rows": ("trn3", "shape-mismatch",
        lambda s, d: ncc.all_to_all_v([s], [d], GROUP, table(4))),
    "all_to_all_v metadata columns": ("trn3", "shape-mismatch",
        lambda s, d: ncc.all_to_all_v([s], [d], GROUP, table(3, 3))),
    "all_to_all_v metadata in SBUF": ("trn3", "shape-mismatch",
        lambda s, d: ncc.all_to_all_v([s], [d], GROUP, sbuf(3, 4, dtype="uint32"))),
    "all_to_all_v displacements": ("trn2", "generation",
        lambda s, d: ncc.all_to_all_v([s], [d], GROUP, table(4), has_rdispls=True)),
    "collective_permute of two": ("trn3", "value-not-allowed",
        lambda s, d: ncc.collective_permute([s, s], [s, s], [(0, 1)])),
    "collective_permute of triples": ("trn3", "value-not-allowed",
        lambda s, d: ncc.collective_permute([s], [s], [(0, 1, 2)])),
    "collective_permute of ranks": ("trn3", "value-not-allowed",
        lambda s, d: ncc.collective_permute([s], [s], [0, 1])),
    "collective_permute in SBUF": ("trn3", "wrong-memory",
        lambda s, d: ncc.collective_permute([sbuf(8, 3)], [sbuf(8, 3)], [(0, 1)])),
    "collective_permute_implicit of two": ("trn3", "value-not-allowed",
        lambda s, d: ncc.collective_permute_implicit([[s, s]], [[s, s]], GROUP)),
    "collective_permute_implicit channels": ("trn3", "value-not-allowed",
        lambda s, d: ncc.collective_permute_implicit([[s]] * 5, [[s]] * 5, GROUP, [0, 1, 2, 3, 4])),
    "collective_permute_implicit order": ("trn3", "value-not-allowed",
        lambda s, d: ncc.collective_permute_implicit([[s]] * 2, [[s]] * 2, GROUP, [1, 0])),
    "collective_permute_implicit_reduce operator": ("trn3", "operator-not-allowed",
        lambda s, d: ncc.collective_permute_implicit_reduce([[s]], [[s]], [[s]], GROUP, nl.power)),
    "ReplicaGroup of ranks in two groups": ("trn3", "value-not-allowed",
        lambda s, d: ncc.all_reduce([s], [s], ncc.ReplicaGroup(OVERLAPPING), nl.add)),
}

GATHERING = {
    # name: (target, code of the refusal, call)
    "of two": ("trn3", "value-not-allowed",
        lambda s, d: ncc.all_gather_v([s, s], [d, d], GROUP, table())),
    "in SBUF": ("trn3", "wrong-memory",
        lambda s, d: ncc.all_gather_v([sbuf(8, 3)], [sbuf(32, 3)], GROUP, table())),
    "metadata": ("trn3", "shape-mismatch",
        lambda s, d: ncc.all_gather_v([s], [d], GROUP, table(2))),
    "displacements": ("trn3", "not-supported",
        lambda s, d: ncc.all_gather_v([s], [d], GROUP, table(4), has_rdispls=True)),
    "pairs": ("trn3", "not-supported",
        lambda s, d: ncc.all_gather_v([s], [d], ncc.ReplicaGroup([[0, 1], [2, 3]]), table(3, 2))),
}
# fmt: on


@pytest.mark.parametrize("name", GATHERING)
def test_a_limit_of_all_gather_v(name):
    """It runs with two cores a rank."""
    target, code, call = GATHERING[name]
    with pytest.raises(nki.NeuronError) as caught:
        run(call, target, cores=2)
    assert caught.value.code == code


@pytest.mark.parametrize("cores", [1, 2])
def test_all_gather_v_has_two_cores_a_rank(cores):
    def call(src, dst):
        ncc.all_gather_v([src], [dst], GROUP, table())

    if cores == 2:
        run(call, "trn3", cores=cores)
        return
    with pytest.raises(nki.NeuronError, match="1 core a rank") as caught:
        run(call, "trn3", cores=cores)
    assert caught.value.code == "not-supported"


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit(name):
    target, code, call = LIMITS[name]
    with pytest.raises(nki.NeuronError) as caught:
        run(call, target)
    assert caught.value.code == code


def test_metadata_in_one_partition():
    """In SBUF a trivial partition dimension comes first; nothing is sent here."""

    def nothing(src, dst):
        ncc.all_to_all_v([src], [dst], GROUP, sbuf(1, 3, RANKS, dtype="uint32"))

    for result in run(nothing, "trn2"):
        np.testing.assert_array_equal(result, np.zeros((32, 3)))


def test_displacements_of_the_receiver():
    def all_to_slot_7(src, dst):
        plan = sbuf(1, 4, RANKS, dtype="uint32")
        nisa.memset(plan[:, 0:1, :], value=1)
        nisa.memset(plan[:, 3:4, :], value=7)
        tile = sbuf(8, 3)
        nisa.memset(tile, value=5.0)
        nisa.dma_copy(dst=src, src=tile)
        ncc.all_to_all_v([src], [dst], GROUP, plan, has_rdispls=True)

    expected = np.zeros(96, np.float32)
    expected[7] = 5
    for result in run(all_to_slot_7, "trn3"):
        np.testing.assert_array_equal(result.reshape(-1), expected)
