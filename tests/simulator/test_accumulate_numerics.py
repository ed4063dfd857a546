"""Operations on the vector engine's accumulate registers against NumPy formulas, on trn2."""

import numpy as np
import pytest
from operation_checks import (
    BF16,
    F32,
    P,
    as_f32,
    assert_close,
    assert_same,
    covers,
    load,
    normal,
    run,
    sbuf,
    store,
)  # fmt: skip

import nki
import nki.isa as nisa
import nki.language as nl


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


REDUCTIONS = {"add": np.sum, "multiply": np.prod, "maximum": np.max, "minimum": np.min}
FOLDS = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}


def reduced(name, x, negate=False):
    result = REDUCTIONS[name](x.reshape(P, -1).astype(np.float64), axis=1, keepdims=True)
    return -result if negate else result


def check(name, actual, expected, x):
    """Exactly for maximum and minimum, sums and products within a bound."""
    if name in ("maximum", "minimum"):
        assert_same(actual, expected.astype(np.float32))
    elif name == "add":
        scale = np.abs(x.reshape(P, -1)).astype(np.float64).sum(axis=1, keepdims=True) + 8
        assert_close(actual, expected, x[0].size, scale)
    else:
        assert_close(actual, expected, x[0].size + 2)


@covers("tensor_scalar_reduce")
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_tile_and_a_scalar_with_its_reduction(name, negate, dtype):
    @nki.jit
    def kernel(a, column):
        each, total = sbuf(a.shape, a.dtype), sbuf((P, 1), nl.float32)
        nisa.tensor_scalar_reduce(
            dst=each, data=load(a), op0=nl.subtract, operand0=load(column),
            reduce_op=getattr(nl, name), reduce_res=total, reduce_res_negate=negate,
        )  # fmt: skip
        return store(each), store(total)

    a, column = normal(70, (P, 3, 13), dtype), normal(71, (P, 1))
    x = as_f32(a) - column[:, :, None]
    each, total = run("tensor_scalar_reduce", kernel, a, column)
    assert_same(each, x.astype(dtype))
    # The fp32 results are reduced, not those that are stored.
    check(name, total, reduced(name, x, negate), x)


@covers("tensor_scalar_reduce")
@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_goes_on_over_calls(name, column):
    """load_reduce, then reduce twice; only the last call reads the registers."""

    @nki.jit
    def kernel(a, start):
        tile, each, total = load(a), sbuf((P, 16), nl.float32), sbuf((P, 1), nl.float32)
        initial = load(start) if column else 1.5
        for part in range(3):
            nisa.tensor_scalar_reduce(
                each,
                tile[:, nl.ds(part * 16, 16)],
                nl.multiply,
                1.0,
                getattr(nl, name),
                reduce_res=total if part == 2 else None,
                reduce_cmd=nisa.reduce_cmd.reduce if part else nisa.reduce_cmd.load_reduce,
                reduce_init=None if part else initial,
            )
        return store(total)

    a, start = normal(72, (P, 48)), normal(73, (P, 1))
    first = start if column else np.full((P, 1), 1.5, np.float32)
    expected = FOLDS[name](reduced(name, a), first.astype(np.float64))
    check(name, run("tensor_scalar_reduce", kernel, a, start), expected, a)


def test_registers_that_hold_nothing_are_reported():
    @nki.jit
    def kernel(a, first):
        each, total = sbuf(a.shape, a.dtype), sbuf((P, 1), nl.float32)
        tile = load(a)
        # The other half of the registers never gets a value.
        nisa.tensor_scalar_reduce(each[0:first], tile[0:first], nl.add, 0.0, nl.add)
        nisa.tensor_scalar_reduce(
            each, tile, nl.add, 0.0, nl.add, total, reduce_cmd=nisa.reduce_cmd.reduce
        )
        return store(total)

    a = normal(74, (P, 8))
    assert_close(nki.simulate(kernel)(a, P), 2 * reduced("add", a), 32, 64.0)
    with pytest.raises(nki.NeuronError, match="64 of its 128 elements depend on uninitialised"):
        nki.simulate(kernel)(a, 64)


def test_engines_have_registers_of_their_own():
    @nki.jit
    def kernel(a):
        tile, each = load(a), sbuf(a.shape, a.dtype)
        one, other = sbuf((P, 1), nl.float32), sbuf((P, 1), nl.float32)
        reset, more = nisa.reduce_cmd.reset_reduce, nisa.reduce_cmd.reduce
        nisa.activation(each, nl.copy, tile, reduce_op=nl.add, reduce_cmd=reset)
        nisa.tensor_scalar_reduce(each, tile, nl.add, 1.0, nl.maximum)
        nisa.activation(each, nl.copy, tile, reduce_op=nl.add, reduce_cmd=more, reduce_res=one)
        nisa.tensor_scalar_reduce(each, tile, nl.add, 0.0, nl.maximum, other, reduce_cmd=more)
        return store(one), store(other)

    a = normal(75, (P, 20))
    one, other = nki.simulate(kernel)(a)
    assert_close(one, 2 * reduced("add", a), 64, 64.0)
    assert_same(other, (a + np.float32(1)).max(axis=1, keepdims=True))


@pytest.mark.parametrize(
    "options, text",
    [
        ({"reduce_cmd": nisa.reduce_cmd.load_reduce}, "needs reduce_init"),
        ({"reduce_init": 1.0}, "reduce_init is given with reduce_cmd=reset_reduce"),
        ({"reduce_cmd": nisa.reduce_cmd.idle}, "reduce_cmd is idle"),
        ({"reverse0": True}, "reverse0 is True"),
        ({"reduce_op": nl.subtract}, "reduce_op is subtract"),
    ],
)
def test_refusals(options, text):
    @nki.jit
    def kernel(a):
        each = sbuf(a.shape, a.dtype)
        nisa.tensor_scalar_reduce(
            **{"dst": each, "data": load(a), "op0": nl.add, "operand0": 1.0, "reduce_op": nl.add}
            | options
        )
        return store(each)

    with pytest.raises(nki.NeuronError, match=text):
        nki.simulate(kernel)(normal(76, (P, 8)))


@covers("select_reduce")
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("column", [False, True])
def test_chosen_elements_with_their_maximum(column, reverse, dtype):
    """Over two calls; the first one's maximum stays in the registers."""

    @nki.jit
    def kernel(a, mask, other):
        tile, chosen, each = load(a), load(mask), sbuf(a.shape, nl.bfloat16)
        found, commands = sbuf((P, 1), nl.float32), nisa.reduce_cmd
        for part, command in enumerate((commands.reset_reduce, commands.reduce)):
            where = nl.ds(part * 20, 20)
            nisa.select_reduce(
                dst=each[:, where],
                predicate=chosen[:, where],
                on_true=tile[:, where],
                on_false=load(other) if column else -0.25,
                reduce_res=found if part else None,
                reduce_cmd=command,
                reverse_pred=reverse,
            )
        return store(each), store(found)

    a, other = normal(77, (P, 40), dtype), normal(78, (P, 1))
    mask = np.random.default_rng(79).integers(0, 2, (P, 40)).astype(np.int8) * -3
    expected = np.where((mask != 0) != reverse, as_f32(a), other if column else np.float32(-0.25))
    each, found = run("select_reduce", kernel, a, mask, other)
    assert_same(each, expected.astype(BF16))
    assert_same(found, expected.max(axis=1, keepdims=True))


def test_idle_leaves_nothing_to_go_on_from():
    @nki.jit
    def kernel(a, mask, command):
        tile, chosen, found = load(a), load(mask), sbuf((P, 1), nl.float32)
        for cmd, result in ((nisa.reduce_cmd.reset_reduce, None), (command, None)):
            nisa.select_reduce(tile, chosen, tile, 0.0, result, cmd)
        nisa.select_reduce(tile, chosen, tile, 0.0, found, nisa.reduce_cmd.reduce)
        return store(found)

    a, mask = normal(80, (P, 8)), np.ones((P, 8), np.uint8)
    assert_same(nki.simulate(kernel)(a, mask, nisa.reduce_cmd.reduce), a.max(axis=1, keepdims=True))
    with pytest.raises(nki.NeuronError, match="uninitialised-output"):
        nki.simulate(kernel)(a, mask, nisa.reduce_cmd.idle)


COMPARISONS = {
    "equal": np.equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
LOWEST = np.finfo(np.float32).min


@covers("range_select")
@pytest.mark.parametrize("names", [("greater_equal", "less"), ("greater", "less_equal"),
                                   ("equal", "equal")])  # fmt: skip
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_positions_in_a_range_with_their_maximum(dtype, names):
    @nki.jit
    def kernel(a, low, high):
        each, found = sbuf(a.shape, a.dtype), sbuf((P, 1), nl.float32)
        nisa.range_select(
            dst=each,
            on_true_tile=load(a),
            comp_op0=getattr(nl, names[0]),
            comp_op1=getattr(nl, names[1]),
            bound0=load(low),
            bound1=load(high),
            reduce_res=found,
            range_start=100,
            on_false_value=-3.4028235e38,
        )
        return store(each), store(found)

    a = normal(81, (P, 4, 10), dtype)
    low = 100 + np.arange(P, dtype=np.float32)[:, None] % 50
    high = low if names[0] == "equal" else low + 7
    positions = 100 + np.arange(40, dtype=np.float32)
    chosen = COMPARISONS[names[0]](positions, low) & COMPARISONS[names[1]](positions, high)
    expected = np.where(chosen, as_f32(a).reshape(P, 40), LOWEST)
    each, found = run("range_select", kernel, a, low, high)
    with np.errstate(over="ignore"):
        assert_same(each, expected.reshape(a.shape).astype(dtype))
    assert_same(found, expected.max(axis=1, keepdims=True))
    assert (found == LOWEST).any()  # rows without any position in the range


def test_what_is_outside_the_range_is_not_read():
    @nki.jit
    def kernel(a, low, high):
        tile, each = sbuf(a.shape, a.dtype), sbuf(a.shape, a.dtype)
        nisa.dma_copy(dst=tile[:, 0:5], src=a[:, 0:5])
        nisa.range_select(
            each, tile, nl.greater_equal, nl.less, bound0=load(low), bound1=load(high)
        )
        return store(each)

    a, low = normal(82, (P, 8)), np.zeros((P, 1), np.float32)
    assert (nki.simulate(kernel)(a, low, low + 5)[:, 5:] == LOWEST).all()
    with pytest.raises(nki.NeuronError, match="uninitialised-output"):
        nki.simulate(kernel)(a, low, low + 6)


@covers("exponential")
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("column", [False, True])
def test_exponentials_with_their_sum(column, dtype, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")

    @nki.jit
    def kernel(a, largest, start):
        tile, each, total = load(a), sbuf(a.shape, a.dtype), sbuf((P, 1), nl.float32)
        for part in range(2):
            where = nl.ds(part * 20, 20)
            nisa.exponential(
                dst=each[:, where],
                src=tile[:, where],
                max_value=load(largest) if column else 1.0,
                reduce_res=total if part else None,
                reduce_cmd=nisa.reduce_cmd.reduce if part else nisa.reduce_cmd.load_reduce,
                reduce_init=0.0 if part else load(start),
            )
        return store(each), store(total)

    a, largest, start = normal(83, (P, 40), dtype), normal(84, (P, 1)), np.full((P, 1), F32.type(3))
    x = np.exp(a.astype(np.float64) - (largest if column else 1))
    each, total = run("exponential", kernel, a, largest, start)
    assert_close(each, x, 16 if dtype == F32 else 1)
    assert_close(total, x.sum(axis=1, keepdims=True) + 3, 64)


def test_a_result_of_nothing_is_refused(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")

    @nki.jit
    def kernel(a):
        total = sbuf((P, 1), nl.float32)
        nisa.exponential(sbuf(a.shape, a.dtype), load(a), reduce_res=total)
        return store(total)

    with pytest.raises(nki.NeuronError, match="reduce_res is given with reduce_cmd=idle"):
        nki.simulate(kernel)(normal(85, (P, 8)))
