"""Cases of `nki.collectives`: six ranks, alone or in two groups of three, no powers of two."""

from functools import partial

import numpy as np
from surface import NUMBERS, SINCE_TRN2, TARGETS, case, values

import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl

RANKS = 6
ALL = ncc.ReplicaGroup([list(range(RANKS))])
THREES = ([0, 2, 4], [5, 3, 1])
GROUP = ncc.ReplicaGroup([list(group) for group in THREES])
PLACE = {rank: (group, group.index(rank)) for group in THREES for rank in group}

collective = partial(case, "nki.collectives", NUMBERS, TARGETS, ranks=RANKS)


def in_hbm(tile):
    """A tile's data in HBM, where ranks exchange it."""
    rows = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nl.store(rows, tile)
    return rows


def result(rows, like):
    """HBM for what arrives, cleared first, as some ranks receive nothing."""
    dst = nl.ndarray(rows, dtype=like.dtype, buffer=nl.shared_hbm)
    nl.store(dst, nl.zeros(rows, dtype=like.dtype, buffer=nl.sbuf))
    return dst


def exchange(shape, call):
    """A body that calls a collective on one source and one destination of a shape."""

    def body(a):
        source, dst = in_hbm(a), result(shape, a)
        call(source, dst)
        return nl.load(dst)

    return body


def of_groups(x, expected):
    """expected(parts of a group in order, own place) for every rank."""
    parts = {i: x[list(group)].astype(float) for i, group in enumerate(THREES)}
    return tuple(
        expected(parts[THREES.index(group)], place) for group, place in (PLACE[r] for r in range(6))
    )


@collective()
def all_reduce(dtype):
    x = values(dtype, (RANKS, 3, 2), high=3)
    call = exchange((3, 2), lambda s, d: ncc.all_reduce([s], [d], GROUP, nl.add))
    return call, (x,), of_groups(x, lambda parts, _: parts.sum(axis=0))


@collective()
def all_gather(dtype):
    x = values(dtype, (RANKS, 2, 2))
    call = exchange((6, 2), lambda s, d: ncc.all_gather([s], [d], GROUP, 0))
    return call, (x,), of_groups(x, lambda parts, _: parts.reshape(6, 2))


@collective()
def reduce_scatter(dtype):
    x = values(dtype, (RANKS, 6, 2), high=3)
    call = exchange((2, 2), lambda s, d: ncc.reduce_scatter([s], [d], GROUP, 0, nl.add))
    own = lambda parts, place: parts.sum(axis=0)[2 * place : 2 * place + 2]  # noqa: E731
    return call, (x,), of_groups(x, own)


@collective()
def all_to_all(dtype):
    x = values(dtype, (RANKS, 6, 2))
    call = exchange((6, 2), lambda s, d: ncc.all_to_all([s], [d], GROUP, 0))
    own = lambda parts, place: parts.reshape(3, 3, 2, 2)[:, place].reshape(6, 2)  # noqa: E731
    return call, (x,), of_groups(x, own)


@collective()
def collective_permute(dtype):
    x = values(dtype, (RANKS, 3, 2))
    pairs = [(0, 1), (1, 2), (2, 0), (4, 5)]
    expected = [np.zeros((3, 2))] * RANKS
    for source, target in pairs:
        expected[target] = x[source]
    call = exchange((3, 2), lambda s, d: ncc.collective_permute([s], [d], pairs))
    return call, (x,), tuple(expected)


@collective()
def collective_permute_implicit(dtype):
    x = values(dtype, (RANKS, 3, 2))
    call = exchange((3, 2), lambda s, d: ncc.collective_permute_implicit([[s]], [[d]], GROUP))
    return call, (x,), of_groups(x, lambda parts, place: parts[place - 1])


@collective()
def collective_permute_implicit_reduce(dtype):
    x = values(dtype, (RANKS, 3, 2), high=3)

    def body(a):
        first, second, dst = in_hbm(a), in_hbm(a), result((3, 2), a)
        ncc.collective_permute_implicit_reduce([[first]], [[second]], [[dst]], GROUP, nl.add)
        return nl.load(dst)

    return body, (x,), of_groups(x, lambda parts, place: 2 * parts[place - 1])


def variable(name, counts, starts, parts_of, ranks):
    """A case of a variable-length collective among all ranks: 3 elements for each."""
    group = ncc.ReplicaGroup([list(range(ranks))])

    def build(dtype):
        x = values(dtype, (ranks, ranks, 3))
        table = np.zeros((ranks, 3, ranks), np.uint32)
        table[:, 0], table[:, 1] = counts, starts
        expected = np.zeros((ranks, ranks, 3))
        flat = x.reshape(ranks, -1).astype(float)
        for rank in range(ranks):
            for sender in range(ranks):
                start, count = (m[sender, parts_of(rank)] for m in (starts, counts))
                expected[rank, sender, :count] = flat[sender, start : start + count]

        def body(a, b):
            source, metadata, dst = in_hbm(a), in_hbm(b), result((ranks, 3), a)
            getattr(ncc, name)([source], [dst], group, metadata)
            return nl.load(dst)

        return body, (x, table), tuple(expected)

    build.__name__ = name
    return build


_SENDER, _RECEIVER = np.indices((RANKS, RANKS))
collective()(
    variable(
        "all_to_all_v", (_SENDER + 2 * _RECEIVER) % 4, (3 * _SENDER + _RECEIVER) % 7, int, RANKS
    )
)
_FOUR = np.indices((4, 4))[0]
case("nki.collectives", NUMBERS, SINCE_TRN2, cores=2, ranks=4)(
    variable("all_gather_v", _FOUR % 4, _FOUR % 7, lambda rank: 0, 4)
)


@case("nki.collectives", ("int32",), TARGETS, ranks=RANKS)
def rank_id(dtype):
    x = np.tile(np.arange(RANKS, dtype=np.int32)[:, None], (RANKS, 1, 1))
    find = ncc.collective_permute_implicit_current_processing_rank_id

    def body(table):
        rows, tile = in_hbm(table), nl.ndarray((1, 2), dtype=nl.int32, buffer=nl.sbuf)
        for column, rank in enumerate((ncc.rank_id(), find(1, ALL))):
            place = rows.ap([[1, 1], [1, 1]], scalar_offset=rank, indirect_dim=0)
            nisa.dma_copy(dst=tile[:, column : column + 1], src=place)
        return tile

    return body, (x,), tuple(np.array([[r, (r - 1) % RANKS]]) for r in range(RANKS))


USED_BY = {
    "nki.collectives.ReplicaGroup": "nki.collectives.all_reduce",
    "nki.collectives.collective_permute_implicit_current_processing_rank_id": (
        "nki.collectives.rank_id"
    ),
}
"""Names whose use is in the case of another name."""
