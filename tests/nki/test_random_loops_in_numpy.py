"""Random nested loops on the device against the same loops in NumPy, in every mode.

A kernel is a tree of steps. `OnDevice` takes them as a kernel, `InNumPy` on arrays, with Python's
own loops. Values are small integers, so that all results are exact. Two cores have counts of their
own; loops that both run alike may exchange tiles.
"""

from __future__ import annotations

from random import Random

import numpy as np
from combinations import seeded

import nki
import nki.isa as nisa
import nki.language as nl

BLOCKS, ROWS, COLUMNS = 4, 16, 24
TILES, REGISTERS, COUNTS = 3, 3, 4
SEEDS = [333, 27180, *range(40)]
"""333: a register stored to a tile, in a stretch that is pipelined. 27180: a loop that the proof of
no race takes for more iterations than there are, out of what it fills."""
LOOPS = ["for", "for", "to_register", "fori", "from_variable", "while", "while_loop"]
STEPS = [
    "load", "store", "add", "subtract_blocks", "copy_block", "products", "through_hbm", "column",
    "move", "next_count", "gather", "exchange",
]  # fmt: skip


def random_steps(random, alike, depth=0, left=None):
    """`alike`: both cores come here equally often."""
    left = [16] if left is None else left
    steps = []
    for _ in range(random.randint(1, 4)):
        left[0] -= 1
        if left[0] < 0:
            break
        if depth < 3 and random.random() < 0.4:
            kind, count = random.choice(LOOPS), random.randrange(3)
            body = random_steps(random, alike and kind == "for", depth + 1, left)
            steps.append((kind, count, body))
        else:
            kinds = STEPS if alike else STEPS[:-1]
            numbers = tuple(random.random() for _ in range(4))
            steps.append((random.choice(kinds), *numbers))
    return steps


def chosen(items, number):
    return items[int(number * len(items))]


class Machine:
    """What both sides share: which operands the numbers of a step choose."""

    def run(self, steps):
        for kind, *rest in steps:
            if kind not in LOOPS:
                yield from getattr(self, kind)(*rest) or ()
                continue
            for variable in self.loop(kind, rest[0]):
                self.variables.append(variable)
                yield from self.run(rest[1])
                self.variables.pop()

    def index(self, number):
        """A block: a number, a register or the variable of a loop."""
        return chosen([0, 3, *self.registers, *self.variables, *self.variables], number)


class OnDevice(Machine):
    def __init__(self, a, counts):
        cores, self.core = nl.num_programs(0), nl.program_id(0)
        self.results = [
            nl.ndarray((cores, *shape), dtype=dtype, buffer=nl.shared_hbm)
            for shape, dtype in (
                ((BLOCKS, ROWS, COLUMNS), a.dtype),
                ((ROWS, BLOCKS * COLUMNS), a.dtype),
                ((TILES, ROWS, COLUMNS), a.dtype),
                ((COUNTS,), nl.int32),
            )
        ]
        self.hbm = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.private_hbm)
        nisa.dma_copy(dst=self.hbm, src=a)
        self.wide = self.tile(ROWS, BLOCKS, COLUMNS)
        for block in range(BLOCKS):
            nisa.dma_copy(dst=self.wide[:, block], src=a[block])
        self.tiles = [nl.load(a[number]) for number in range(TILES)]
        self.counts = nl.load(counts[self.core : self.core + 1])
        self.first_row = self.tile(ROWS, ROWS)
        nisa.memset(dst=self.first_row, value=0.0)
        nisa.memset(dst=self.first_row[0:1], value=1.0)
        self.registers = [nisa.register_alloc(value) for value in (1, 2, 0)]
        self.variables = []

    def finish(self):
        wide = self.wide.reshape((ROWS, BLOCKS * COLUMNS))
        for result, value in zip(self.results, (self.hbm, wide)):
            nisa.dma_copy(dst=result[self.core], src=value)
        for number, tile in enumerate(self.tiles):
            nisa.dma_copy(dst=self.results[2][self.core, number], src=tile)
        nisa.dma_copy(dst=self.results[3][self.core : self.core + 1], src=self.counts)
        return tuple(self.results)

    def loop(self, kind, count):
        if kind == "for":
            yield from nl.dynamic_range(count)
        elif kind in ("to_register", "fori"):
            yield from nl.dynamic_range(0, self.registers[count])
        elif kind == "from_variable":
            start = self.variables[-1] if self.variables else 0
            yield from nl.dynamic_range(start, self.registers[count])
        else:
            tile = self.tile(1, 1, dtype=nl.int32)
            nisa.tensor_copy(dst=tile, src=self.counts[:, count : count + 1])
            left = nisa.register_alloc(tile)
            while left:
                yield 1
                nisa.tensor_scalar(dst=tile, data=tile, op0=nl.subtract, operand0=1)
                nisa.register_load(left, tile)

    def tile(self, *shape, dtype=nl.float32, buffer=nl.sbuf):
        return nl.ndarray(shape, dtype=dtype, buffer=buffer)

    def clipped(self, tile):
        nisa.tensor_scalar(
            dst=tile, data=tile, op0=nl.minimum, operand0=7.0, op1=nl.maximum, operand1=-7.0
        )

    def block(self, number):
        return self.wide[:, nl.ds(self.index(number), 1)]

    def load(self, p, q, *_):
        tile = chosen(self.tiles, p)
        nisa.dma_copy(dst=tile, src=self.hbm.select(0, self.index(q)))

    def store(self, p, q, *_):
        nisa.dma_copy(dst=self.hbm.select(0, self.index(q)), src=chosen(self.tiles, p))

    def add(self, p, q, *_):
        one, other = chosen(self.tiles, p), chosen(self.tiles, q)
        nisa.tensor_tensor(dst=one, data1=one, data2=other, op=nl.add)
        self.clipped(one)

    def subtract_blocks(self, p, q, r, _):
        tile = chosen(self.tiles, p).reshape((ROWS, 1, COLUMNS))
        nisa.tensor_tensor(dst=tile, data1=self.block(q), data2=self.block(r), op=nl.subtract)
        self.clipped(tile)

    def copy_block(self, p, q, r, _):
        engine = chosen([nisa.engine.vector, nisa.engine.gpsimd, nisa.engine.scalar], r)
        nisa.tensor_copy(dst=self.block(p), src=self.block(q), engine=engine)

    def products(self, p, q, r, _):
        total = self.tile(ROWS, COLUMNS, buffer=nl.psum)
        for _ in nl.dynamic_range(1 + int(3 * r)):
            nisa.nc_matmul(total, self.first_row, chosen(self.tiles, p))
        nisa.tensor_copy(dst=chosen(self.tiles, q), src=total)
        self.clipped(chosen(self.tiles, q))

    def through_hbm(self, p, q, *_):
        away = self.tile(ROWS, COLUMNS, buffer=nl.private_hbm)
        nisa.dma_copy(dst=away, src=chosen(self.tiles, p))
        nisa.dma_copy(dst=chosen(self.tiles, q), src=away)

    def column(self, p, q, *_):
        one = chosen(self.tiles, p)[:, nl.ds(self.index(q), 1)]
        nisa.tensor_scalar(dst=one, data=one, op0=nl.multiply, operand0=-1.0)

    def move(self, p, q, *_):
        nisa.register_move(chosen(self.registers, p), self.index(q))

    def next_count(self, p, q, r, _):
        place = int(p * COUNTS)
        one = self.counts[:, place : place + 1]
        nisa.register_store(one, chosen(self.registers, q))
        nisa.tensor_scalar(dst=self.counts, data=self.counts, op0=nl.add, operand0=1)
        nisa.tensor_scalar(dst=self.counts, data=self.counts, op0=nl.bitwise_and, operand0=3)
        nisa.register_load(chosen(self.registers, r), one)

    def gather(self, p, q, *_):
        place = int(p * COUNTS)
        source = self.hbm.select(0, self.counts[:, place : place + 1])
        nisa.dma_copy(dst=chosen(self.tiles, q), src=source)

    def exchange(self, p, q, *_):
        other, received = 1 - self.core, self.tile(ROWS, COLUMNS)
        nisa.sendrecv(chosen(self.tiles, p), received, other, other, pipe_id=0)
        nisa.tensor_copy(dst=chosen(self.tiles, q), src=received)


class InNumPy(Machine):
    def __init__(self, a, counts, core):
        self.hbm, self.wide = a.copy(), a.transpose(1, 0, 2).copy()
        self.tiles = [a[number].copy() for number in range(TILES)]
        self.counts, self.registers, self.variables = counts[core].copy(), [1, 2, 0], []

    def results(self):
        wide = self.wide.reshape(ROWS, BLOCKS * COLUMNS)
        return self.hbm, wide, np.stack(self.tiles), self.counts

    def loop(self, kind, count):
        if kind == "from_variable":
            yield from range(self.variables[-1] if self.variables else 0, self.registers[count])
        elif kind.startswith("while"):
            for _ in range(self.counts[count]):
                yield 1
        else:
            yield from range(count if kind == "for" else self.registers[count])

    def load(self, p, q, *_):
        chosen(self.tiles, p)[:] = self.hbm[self.index(q)]

    def store(self, p, q, *_):
        self.hbm[self.index(q)] = chosen(self.tiles, p)

    def add(self, p, q, *_):
        one = chosen(self.tiles, p)
        one[:] = np.clip(one + chosen(self.tiles, q), -7, 7)

    def subtract_blocks(self, p, q, r, _):
        difference = self.wide[:, self.index(q)] - self.wide[:, self.index(r)]
        chosen(self.tiles, p)[:] = np.clip(difference, -7, 7)

    def copy_block(self, p, q, *_):
        self.wide[:, self.index(p)] = self.wide[:, self.index(q)].copy()

    def products(self, p, q, r, _):
        total = (1 + int(3 * r)) * chosen(self.tiles, p)[0]
        chosen(self.tiles, q)[:] = np.clip(total, -7, 7)

    def through_hbm(self, p, q, *_):
        chosen(self.tiles, q)[:] = chosen(self.tiles, p).copy()

    def column(self, p, q, *_):
        chosen(self.tiles, p)[:, self.index(q)] *= -1

    def move(self, p, q, *_):
        self.registers[int(p * REGISTERS)] = self.index(q)

    def next_count(self, p, q, r, _):
        place = int(p * COUNTS)
        self.counts[place] = chosen(self.registers, q)
        self.counts = (self.counts + 1) & 3
        self.registers[int(r * REGISTERS)] = int(self.counts[place])

    def gather(self, p, q, *_):
        chosen(self.tiles, q)[:] = self.hbm[self.counts[int(p * COUNTS)]]

    def exchange(self, p, q, *_):
        """The other core sends when this one does, and neither does alone."""
        chosen(self.tiles, q)[:] = yield chosen(self.tiles, p).copy()


def in_numpy(steps, a, counts):
    """The results of the cores, which take turns where they exchange."""
    machines = [InNumPy(a, counts, core) for core in range(len(counts))]
    runs = [machine.run(steps) for machine in machines]
    given = [None] * len(runs)
    while True:
        sent = [_sent(run, value) for run, value in zip(runs, given)]
        if sent[0] is None:
            return [np.stack(parts) for parts in zip(*(m.results() for m in machines))]
        given = sent[::-1]


def _sent(run, value):
    """What a core sends next; None: it has ended."""
    try:
        return run.send(value)
    except StopIteration:
        return None


def assert_loops_do_what_they_do_in_numpy(seed):
    cores, rng = 1 + seed % 2, np.random.default_rng(seed)
    steps = random_steps(Random(seed), alike=cores == 2)

    def kernel(a, counts):
        machine = OnDevice(a, counts)
        for _ in machine.run(steps):
            pass
        return machine.finish()

    launched = nki.jit(kernel, platform_target=["trn2", "trn3"][seed // 2 % 2])[cores]
    a = rng.integers(-3, 4, (BLOCKS, ROWS, COLUMNS)).astype(np.float32)
    counts = rng.integers(0, 4, (cores, COUNTS)).astype(np.int32)
    expected = in_numpy(steps, a, counts)
    for mode in ("device", "reference", "eager"):
        results = nki.simulate(launched, mode=mode)(a, counts)
        for result, want in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, want, err_msg=mode)


@seeded("seed", SEEDS, 22)
def test_loops_do_what_they_do_in_numpy(seed):
    assert_loops_do_what_they_do_in_numpy(seed)
