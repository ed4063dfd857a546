"""Operations on the vector engine's accumulate registers against NumPy formulas, on trn2."""

import numpy as np
import pytest
from operation_checks import (
    BF16,
    F32,
    P,
    as_f32,
    close,
    covers,
    load,
    normal,
    run,
    same,
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
        same(actual, expected.astype(np.float32))
    elif name == "add":
        scale = np.abs(x.reshape(P, -1)).astype(np.float64).sum(axis=1, keepdims=True) + 8
        close(actual, expected, x[0].size, scale)
    else:
        close(actual, expected, x[0].size + 2)


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
    same(each, x.astype(dtype))
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
    close(nki.simulate(kernel)(a, P), 2 * reduced("add", a), 32, 64.0)
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
    close(one, 2 * reduced("add", a), 64, 64.0)
    same(other, (a + np.float32(1)).max(axis=1, keepdims=True))


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
