"""Random nests of loops over launch symbols, registers and ints, with transfers in and out: the
program has no race for any size that is tried, and gives the bits of eager mode.

`nki.compile` itself raises when a size has a race.
"""

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from isa.binding import bind
from simulator.checks.happens_before import check

ROWS, COLUMNS = 128, 32
ACTIONS = ("vector", "scalar", "gpsimd", "load", "store", "reload", "keep", "matmul")
tile = st.integers(0, 2)
actions = st.lists(st.tuples(st.sampled_from(ACTIONS), tile, tile), min_size=1, max_size=4)
loop_kinds = st.sampled_from(["symbol", "symbol", "register", "count", "unrolled"])
blocks = st.recursive(
    st.lists(st.tuples(st.just("act"), st.just(0), actions), min_size=1, max_size=2),
    lambda inner: st.lists(
        st.tuples(st.just("act"), st.just(0), actions)
        | st.tuples(loop_kinds, st.integers(0, 3), inner),
        min_size=1,
        max_size=3,
    ),
    max_leaves=6,
)


def new_tile():
    return nl.ndarray((ROWS, COLUMNS), dtype=nl.float32, buffer=nl.sbuf)


class Run:
    """One block of a plan: `kept` tiles outlive it, tiles of its own begin as copies of them."""

    def __init__(self, a, out, trips, kept):
        self.a, self.out, self.trips, self.kept = a, out, trips, kept

    def block(self, plan, start):
        own = {}

        def get(index):
            if index not in own:
                own[index] = new_tile()
                nisa.tensor_copy(dst=own[index], src=self.kept[index])
            return own[index]

        for kind, count, body in plan:
            if kind == "act":
                for action, x, y in body:
                    getattr(self, action)(get, x, y, nl.ds(start, ROWS))
            elif kind == "symbol":
                for i in nl.affine_range(self.a.shape[0] // ROWS):
                    self.block(body, i * ROWS)
            else:
                steps = {
                    "register": lambda: nl.dynamic_range(self.trips),
                    "count": lambda count=count: nl.dynamic_range(count),
                    "unrolled": lambda count=count: range(count),
                }
                for _ in steps[kind]():
                    self.block(body, start)

    def vector(self, get, x, y, rows):
        nisa.tensor_tensor(dst=get(x), data1=get(x), data2=get(y), op=nl.maximum)

    def scalar(self, get, x, y, rows):
        nisa.activation(dst=get(x), op=nl.tanh, data=get(y))

    def gpsimd(self, get, x, y, rows):
        tile = get(x)
        nisa.tensor_tensor(tile, tile, get(y), op=nl.subtract, engine=nisa.gpsimd_engine)

    def load(self, get, x, y, rows):
        nisa.dma_copy(dst=get(x), src=self.a[rows, :])

    def store(self, get, x, y, rows):
        nisa.dma_copy(dst=self.out[rows, :], src=get(x))

    def reload(self, get, x, y, rows):
        tile = new_tile()
        nisa.dma_copy(dst=tile, src=self.out[rows, :])
        nisa.tensor_scalar(dst=self.kept[x], data=tile, op0=nl.multiply, operand0=0.5)

    def keep(self, get, x, y, rows):
        kept = self.kept[x]
        nisa.tensor_tensor(dst=kept, data1=kept, data2=get(y), op=nl.minimum)

    def matmul(self, get, x, y, rows):
        product = nl.ndarray((COLUMNS, COLUMNS), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(product, get(x), get(y))
        nisa.tensor_copy(dst=get(x)[0:COLUMNS, :], src=product)


def kernel(a, counts, plan):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    first = new_tile()
    nisa.memset(dst=first, value=0.5)
    for i in nl.affine_range(a.shape[0] // ROWS):
        nisa.dma_copy(dst=out[nl.ds(i * ROWS, ROWS), :], src=first)
    count = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=count, src=counts)
    trips = nisa.register_alloc()
    nisa.register_load(trips, count)
    kept = [new_tile() for _ in range(3)]
    for number, tile in enumerate(kept):
        nisa.memset(dst=tile, value=float(number + 1))
    Run(a, out, trips, kept).block(plan, 0)
    return out


# No shrinking: it takes minutes, and a failing plan is small already.
@settings(
    max_examples=40,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
@given(blocks)
def test_random_loops_have_no_races_and_give_the_bits_of_eager_mode(plan):
    jitted = nki.jit(kernel, platform_target="trn2")
    rows = nki.symbol("M", multiple_of=ROWS, max=2048)
    specs = nki.TensorSpec((rows, COLUMNS), nl.float32), nki.TensorSpec((1, 1), nl.int32)
    compiled = nki.compile(jitted, *specs, plan)
    for tiles, count in ((1, 2), (3, 1), (4, 0)):
        a = np.random.default_rng(tiles).standard_normal((tiles * ROWS, COLUMNS), np.float32)
        counts = np.array([[count]], np.int32)
        out = compiled(a, counts)
        eager = nki.simulate(jitted, mode="eager")(a, counts, plan)
        np.testing.assert_array_equal(out.view(np.uint32), eager.view(np.uint32))
    assert check(bind(compiled.program, {"M": 5 * ROWS})) == []
