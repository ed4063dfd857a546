"""Collectives over ranks in one process, against NumPy."""

import numpy as np
import pytest

import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl

RANKS = 4
X = np.random.default_rng(0).integers(-9, 9, (RANKS, 8, 3)).astype(np.float32)
GROUP = ncc.ReplicaGroup([[0, 1, 2, 3]])
PAIRS = ncc.ReplicaGroup([[0, 2], [3, 1]])


def run(body, shape, lnc=1, x=X, **arguments):
    """The results of all ranks; body(src, dst, ...) is the collective."""

    def kernel(a, **arguments):
        src = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        dst = nl.ndarray(shape, dtype=a.dtype, buffer=nl.shared_hbm)
        out = nl.ndarray(shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=src, src=a)
        nisa.dma_copy(dst=dst, src=nl.zeros(shape, dtype=a.dtype, buffer=nl.sbuf))
        body(src, dst)
        nisa.dma_copy(dst=out, src=dst)
        return out

    launched = nki.jit(kernel, platform_target="trn2")[lnc]
    return ncc.simulate_ranks(launched, [{"a": part} for part in x])


LNC = pytest.mark.parametrize("lnc", [1, 2])


@LNC
@pytest.mark.parametrize(
    ("op", "reference"),
    [(nl.add, np.sum), (nl.minimum, np.min), (nl.maximum, np.max)],
    ids=("add", "minimum", "maximum"),
)
def test_all_reduce(lnc, op, reference):
    for result in run(lambda s, d: ncc.all_reduce([s], [d], GROUP, op), (8, 3), lnc):
        np.testing.assert_array_equal(result, reference(X, axis=0))


def test_groups_work_apart():
    results = run(lambda s, d: ncc.all_reduce([s], [d], PAIRS, nl.add), (8, 3))
    for rank, other in ((0, 2), (2, 0), (1, 3), (3, 1)):
        np.testing.assert_array_equal(results[rank], X[rank] + X[other])


@LNC
def test_all_gather(lnc):
    for result in run(lambda s, d: ncc.all_gather([s], [d], GROUP, 0), (32, 3), lnc):
        np.testing.assert_array_equal(result, X.reshape(32, 3))
    results = run(lambda s, d: ncc.all_gather([s], [d], PAIRS, 0), (16, 3), lnc)
    np.testing.assert_array_equal(results[1], np.concatenate([X[3], X[1]]))


def test_all_gather_of_tiles_along_the_free_dimension():
    def body(s, d):
        tile, wide = nl.load(s), nl.ndarray((8, 12), dtype=s.dtype, buffer=nl.sbuf)
        ncc.all_gather([tile], [wide], GROUP, 1)
        nl.store(d, wide)

    for result in run(body, (8, 12)):
        np.testing.assert_array_equal(result, np.concatenate(list(X), axis=1))


def test_each_core_gathers_its_own_tiles():
    def kernel(a):
        wide = (a.shape[0], RANKS * a.shape[1])
        out = nl.ndarray(wide, dtype=a.dtype, buffer=nl.shared_hbm)
        half = a.shape[0] // 2
        mine = nl.ds(nl.program_id(0) * half, half)
        tile = nl.ndarray((half, wide[1]), dtype=a.dtype, buffer=nl.sbuf)
        ncc.all_gather([nl.load(a[mine])], [tile], GROUP, 1)
        nl.store(out[mine], tile)
        return out

    launched = nki.jit(kernel, platform_target="trn2")[2]
    for result in ncc.simulate_ranks(launched, [{"a": part} for part in X]):
        np.testing.assert_array_equal(result, np.concatenate(list(X), axis=1))


@pytest.mark.parametrize("alone", [False, True], ids=["both cores", "core 0 alone"])
def test_cores_exchange_scratch_of_their_own(alone):
    """In private HBM there is nothing in common: neither core waits for the other."""

    def kernel(a):
        out = nl.ndarray((2, RANKS * 4, 3), dtype=a.dtype, buffer=nl.shared_hbm)
        core = nl.program_id(0)
        for half in [0, 1] if alone else [core]:
            if alone and core == 1:
                continue
            src = nl.ndarray((4, 3), dtype=a.dtype, buffer=nl.private_hbm)
            dst = nl.ndarray((RANKS * 4, 3), dtype=a.dtype, buffer=nl.private_hbm)
            nisa.dma_copy(dst=src, src=a[4 * half : 4 * half + 4])
            ncc.all_gather([src], [dst], GROUP, 0)
            nisa.dma_copy(dst=out[half], src=dst)
        nisa.core_barrier(data=out, cores=(0, 1))
        return out

    launched = nki.jit(kernel, platform_target="trn2")[2]
    for result in ncc.simulate_ranks(launched, [{"a": part} for part in X]):
        np.testing.assert_array_equal(result[0], X[:, :4].reshape(-1, 3))
        np.testing.assert_array_equal(result[1], X[:, 4:].reshape(-1, 3))


@LNC
def test_reduce_scatter(lnc):
    results = run(lambda s, d: ncc.reduce_scatter([s], [d], GROUP, 0, nl.add), (2, 3), lnc)
    for rank, result in enumerate(results):
        np.testing.assert_array_equal(result, X.sum(0)[2 * rank : 2 * rank + 2])


@LNC
def test_all_to_all(lnc):
    results = run(lambda s, d: ncc.all_to_all([s], [d], GROUP, 0), (8, 3), lnc)
    parts = X.reshape(RANKS, RANKS, 2, 3)
    for rank, result in enumerate(results):
        np.testing.assert_array_equal(result, parts[:, rank].reshape(8, 3))


def test_collective_permute():
    pairs = [(0, 1), (1, 3)]
    results = run(lambda s, d: ncc.collective_permute([s], [d], pairs), (8, 3))
    for result, expected in zip(results, (0 * X[0], X[0], 0 * X[0], X[1])):
        np.testing.assert_array_equal(result, expected)


def test_a_ring():
    def body(s, d):
        ncc.collective_permute_implicit([[s]], [[d]], GROUP)
        ncc.collective_permute_implicit_reduce([[d]], [[s]], [[s]], GROUP, nl.add)
        nisa.dma_copy(dst=d, src=s)

    results = run(body, (8, 3))
    for rank, result in enumerate(results):
        np.testing.assert_array_equal(result, X[rank - 2] + X[rank - 1])


def test_who_is_processed_in_a_ring():
    def kernel(table, step):
        tile = nl.ndarray((1, 2), dtype=nl.int32, buffer=nl.sbuf)
        find = ncc.collective_permute_implicit_current_processing_rank_id
        for column, rank in enumerate((find(step, GROUP), ncc.rank_id())):
            place = table.ap([[1, 1], [1, 1]], scalar_offset=rank, indirect_dim=0)
            nisa.dma_copy(dst=tile[:, column : column + 1], src=place)
        out = nl.ndarray((1, 2), dtype=nl.int32, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    table = np.arange(RANKS, dtype=np.int32).reshape(RANKS, 1)
    for step in range(6):
        results = ncc.simulate_ranks(kernel, [{"table": table, "step": step}] * RANKS)
        expected = [[(rank - step) % RANKS, rank] for rank in range(RANKS)]
        np.testing.assert_array_equal(np.concatenate(results), expected)


def variable(name, counts, displacements, known):
    """dst and metadata of all ranks after a variable-length collective."""

    def kernel(a, table):
        src, dst = (nl.ndarray((8, 3), a.dtype, buffer=nl.shared_hbm) for _ in range(2))
        metadata = nl.ndarray(table.shape, dtype=nl.uint32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=src, src=a)
        nisa.dma_copy(dst=dst, src=nl.zeros((8, 3), dtype=a.dtype, buffer=nl.sbuf))
        nisa.dma_copy(dst=metadata, src=table)
        getattr(ncc, name)([src], [dst], GROUP, metadata, recv_counts_known=known)
        return dst, metadata

    arguments = []
    for rank in range(RANKS):
        table = np.zeros((3, RANKS), np.uint32)
        table[0], table[1], table[2] = counts[rank], displacements[rank], 77
        arguments.append({"a": X[rank], "table": table})
    cores = 2 if name == "all_gather_v" else 1
    return ncc.simulate_ranks(nki.jit(kernel, platform_target="trn2")[cores], arguments)


@pytest.mark.parametrize("known", [False, True])
def test_all_to_all_v(known):
    counts = np.array([[1, 2, 3, 0], [4, 5, 6, 1], [0, 0, 2, 2], [6, 1, 1, 1]])
    starts = np.arange(16).reshape(4, 4) % 7
    for rank, (dst, metadata) in enumerate(variable("all_to_all_v", counts, starts, known)):
        expected = np.zeros((RANKS, 6), np.float32)
        for sender in range(RANKS):
            start, count = starts[sender, rank], counts[sender, rank]
            expected[sender, :count] = X[sender].reshape(-1)[start : start + count]
        np.testing.assert_array_equal(dst.reshape(RANKS, 6), expected)
        np.testing.assert_array_equal(metadata[2], [77] * 4 if known else counts[:, rank])


def test_all_gather_v():
    counts, starts = np.array([[1], [6], [0], [3]]), np.array([[2], [0], [5], [1]])
    results = variable("all_gather_v", counts, starts, False)
    expected = np.zeros((RANKS, 6), np.float32)
    for sender in range(RANKS):
        start, count = starts[sender, 0], counts[sender, 0]
        expected[sender, :count] = X[sender].reshape(-1)[start : start + count]
    for dst, metadata in results:
        np.testing.assert_array_equal(dst.reshape(RANKS, 6), expected)
        np.testing.assert_array_equal(metadata[2], counts[:, 0])


@nki.jit(platform_target="trn2")
def summed(a, group):
    src = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=src, src=a)
    ncc.all_reduce(srcs=[src], dsts=[out], replica_group=group, op=nl.add)
    return out


def test_a_plain_call_gives_every_rank_the_same_arguments():
    np.testing.assert_array_equal(summed(X[0], GROUP), 4 * X[0])
    np.testing.assert_array_equal(nki.simulate(summed[2])(X[1], PAIRS), 2 * X[1])


def test_a_sum_rounds_once_in_the_order_of_the_ranks():
    x = np.array([256, 1, 1, 1], np.float16)[:, None, None]
    results = ncc.simulate_ranks(summed, [{"a": part * 8, "group": GROUP} for part in x])
    assert [r.item() for r in results] == [np.float16(np.float32(256 * 8 + 24))] * 4


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (lambda s, d: ncc.all_reduce([s], [d], GROUP, nl.multiply), "operator-not-allowed"),
        (lambda s, d: ncc.all_reduce([s, s], [d], GROUP, nl.add), "value-not-allowed"),
        (lambda s, d: ncc.all_reduce([nl.load(s)], [d], GROUP, nl.add), "wrong-memory"),
        (lambda s, d: ncc.all_gather([s], [d], GROUP, 0), "shape-mismatch"),
        (lambda s, d: ncc.all_gather([s], [d], GROUP, 1), "value-not-allowed"),
        (lambda s, d: ncc.all_to_all([nl.load(s)], [nl.load(d)], GROUP, 0), "wrong-memory"),
        (lambda s, d: ncc.all_reduce([s], [d], GROUP, nl.add, priority=1), "generation"),
        (lambda s, d: ncc.collective_permute([s], [d], [(0, 1), (2, 1)]), "value-not-allowed"),
        (
            lambda s, d: ncc.collective_permute_implicit([[s]], [[d]], GROUP, [1]),
            "value-not-allowed",
        ),
        (
            lambda s, d: ncc.all_reduce([s], [d], ncc.ReplicaGroup([[0, 1]]), nl.add),
            "value-not-allowed",
        ),
    ],
)
def test_what_is_refused(body, code):
    with pytest.raises(nki.NeuronError) as caught:
        run(body, (8, 3))
    assert caught.value.code == code and caught.value.location.file == __file__


MISUSES = {
    "a tensor for a list": (lambda s, d: ncc.all_reduce(s, d, GROUP, nl.add), "[tensor]"),
    "a tensor for a list of one": (
        lambda s, d: ncc.collective_permute(s, d, [(0, 1)]),
        "[tensor]",
    ),
    "no tensor in a list": (lambda s, d: ncc.all_reduce([s], [3], GROUP, nl.add), "[tensor]"),
    "ranks for a group": (
        lambda s, d: ncc.all_gather([s], [d], [[0, 1, 2, 3]], 0),
        "ReplicaGroup([[0, 1]])",
    ),
    "ranks for a group in a reduction": (
        lambda s, d: ncc.all_reduce([s], [d], [[0, 1, 2, 3]], nl.add),
        "ReplicaGroup([[0, 1]])",
    ),
    "too small a destination": (
        lambda s, d: ncc.all_gather([s], [d], GROUP, 0),
        "float32 with 96 elements",
    ),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuses_name_the_way_out(name):
    body, hint = MISUSES[name]
    with pytest.raises(nki.NeuronError) as caught:
        run(body, (8, 3))
    assert hint in caught.value.hint and caught.value.location.file == __file__


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_of_a_group_that_do_not_run(ranks):
    with pytest.raises(nki.NeuronError, match=f"{ranks} ranks? run") as caught:
        run(lambda s, d: ncc.all_reduce([s], [d], GROUP, nl.add), (8, 3), x=X[:ranks])
    assert caught.value.code == "value-not-allowed" and "simulate_ranks" in caught.value.hint


@LNC
def test_ranks_that_wait_for_each_other(lnc):
    """Rank 0 gathers where the others reduce: both would wait for ever."""

    def kernel(a, first):
        src = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        dst = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=src, src=a)
        if first:
            ncc.all_to_all([src], [dst], GROUP, 0)
        ncc.all_reduce([src], [dst], GROUP, nl.add)
        return dst

    arguments = [{"a": X[r], "first": r == 0} for r in range(RANKS)]
    with pytest.raises(nki.NeuronError) as caught:
        ncc.simulate_ranks(nki.jit(kernel, platform_target="trn2")[lnc], arguments)
    assert caught.value.code == "deadlock"
    assert "rank 0 waits in all_to_all for rank 1, which waits in all_reduce" in caught.value.what


def test_a_rank_that_does_not_come():
    def kernel(a, group, lazy):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=a)
        if not lazy:
            ncc.all_reduce([out], [out], group, nl.add)
        return out

    arguments = [{"a": X[r], "group": GROUP, "lazy": r == 2} for r in range(RANKS)]
    with pytest.raises(nki.NeuronError, match="rank 2 does not come") as caught:
        ncc.simulate_ranks(kernel, arguments)
    assert caught.value.code == "deadlock"


def test_the_error_of_the_rank_that_failed():
    def kernel(a, group, bad):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=a)
        assert not bad, "the third"
        ncc.all_reduce([out], [out], group, nl.add)

    arguments = [{"a": X[r], "group": GROUP, "bad": r == 2} for r in range(RANKS)]
    with pytest.raises(AssertionError, match="the third"):
        ncc.simulate_ranks(kernel, arguments)


def test_a_compiled_program_has_no_collectives():
    with pytest.raises(nki.NeuronError, match="simulate_ranks") as caught:
        summed.trace(nki.TensorSpec((8, 3), nl.float32), GROUP)
    assert caught.value.code == "not-supported"


@pytest.mark.parametrize("groups", [[[0, 0]], [[0], [1, 2]], [[-1]], 3, []])
def test_replica_groups_that_are_none(groups):
    with pytest.raises(nki.NeuronError) as caught:
        ncc.ReplicaGroup(groups)
    assert caught.value.code == "value-not-allowed"
