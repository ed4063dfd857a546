"""activate2 against NumPy formulas, on trn3: operators before the function, reductions after it."""

import numpy as np
import pytest
from operation_checks import (
    BF16,
    F32,
    P,
    assert_close,
    assert_same,
    covers,
    load,
    normal,
    run,
    sbuf,
    store,
)

import nki
import nki.isa as nisa
import nki.language as nl

CMD = nisa.reduce_cmd


@pytest.fixture(autouse=True)
def trn3(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")


OPERATORS = {
    "multiply": np.multiply,
    "add": np.add,
    "subtract": np.subtract,
    "bypass": lambda x, y: x,
}
PAIRS = [
    ("multiply", "add"),
    ("multiply", "subtract"),
    ("multiply", "bypass"),
    ("add", "bypass"),
    ("subtract", "bypass"),
    ("bypass", "bypass"),
]


def before(x, pair, values, reverse):
    """What reaches the function, in fp32 as the engine rounds it."""
    for name, value, swap in zip(pair, values, reverse):
        value = np.float32(value) if np.isscalar(value) else value.astype(np.float32)
        left, right = (value, x) if swap and name != "bypass" else (x, value)
        x = OPERATORS[name](left, right)
    return x


@covers("activate2")
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_operators_before_the_function(dtype, columns, reverse, pair):
    """Exactly: `copy` passes what the operators give."""
    flags = {f"reverse{i}": reverse and name != "bypass" for i, name in enumerate(pair)}

    @nki.jit
    def kernel(a, left, right):
        result = sbuf(a.shape, nl.float32)
        imm0, imm1 = (load(left), load(right)) if columns else (0.75, -1.25)
        op0, op1 = (getattr(nl, name) for name in pair)
        nisa.activate2(result, nl.copy, load(a), imm0, imm1, op0, op1, **flags)
        return store(result)

    a, left, right = normal(501, (P, 5, 7), dtype), normal(502, (P, 1)), normal(503, (P, 1))
    values = (left[..., None], right[..., None]) if columns else (0.75, -1.25)
    expected = before(a.astype(np.float32), pair, values, list(flags.values()))
    assert_same(run("activate2", kernel, a, left, right), expected)


@covers("activate2")
@pytest.mark.parametrize("name, formula", [("exp", np.exp), ("tanh", np.tanh), ("sqrt", np.sqrt)])
def test_functions(name, formula):
    @nki.jit
    def kernel(a):
        result = sbuf(a.shape, nl.float32)
        nisa.activate2(result, getattr(nl, name), load(a), 2.0, 0.5, nl.multiply, nl.add)
        return store(result)

    a = np.abs(normal(504, (P, 40)))
    assert_close(run("activate2", kernel, a), formula(a.astype(np.float64) * 2 + 0.5), 8)


@covers("activate2")
@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_prelu_takes_its_slope(column, backend, monkeypatch):
    monkeypatch.setenv("NKI_BACKEND", backend)

    @nki.jit
    def kernel(a, slopes):
        result = sbuf(a.shape, nl.float32)
        slope = load(slopes) if column else 0.25
        nisa.activate2(result, nl.prelu, load(a), 0.0, 0.0, nl.bypass, nl.bypass, relu_param=slope)
        return store(result)

    a, slopes = normal(505, (P, 33)), normal(506, (P, 1))
    assert_same(
        run("activate2", kernel, a, slopes),
        np.where(a > 0, a, a * (slopes if column else np.float32(0.25))),
    )


def by_magnitude(choose):
    """The element of each row whose magnitude `choose` (argmax, argmin) picks."""
    return lambda x: np.take_along_axis(x, choose(np.abs(x), axis=1)[:, None], 1)[:, 0]


REDUCTIONS = {
    "maximum": lambda x: x.max(axis=1),
    "minimum": lambda x: x.min(axis=1),
    "abs_max": by_magnitude(np.argmax),
    "abs_min": by_magnitude(np.argmin),
    "add": lambda x: x.astype(np.float64).sum(axis=1),
}


@covers("activate2")
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_reductions_over_several_calls(name, dtype):
    """Of the fp32 results, before the output cast; registers go on from call to call."""

    @nki.jit
    def kernel(a):
        tile, result, total = load(a), sbuf((P, 24), dtype.name), sbuf((P, 1), nl.float32)
        fold = getattr(nl, name)
        for i, command in enumerate((CMD.reset_reduce, CMD.reduce, CMD.idle, CMD.reduce)):
            last = i == 3
            nisa.activate2(
                result, nl.copy, tile[:, nl.ds(24 * i, 24)], 3.0, 0.0, nl.multiply, nl.bypass,
                reduce_op=fold, reduce_res=total if last else None, reduce_cmd=command,
            )  # fmt: skip
        return store(total), store(result)

    a = normal(507, (P, 96))
    total, result = run("activate2", kernel, a)
    x = a * np.float32(3)
    assert_same(result, x[:, 72:].astype(dtype))
    used = np.concatenate([x[:, :48], x[:, 72:]], axis=1)
    expected = REDUCTIONS[name](used)[:, None]
    if name == "add":
        assert_close(total, expected, 72, np.abs(used).sum(axis=1, keepdims=True))
    else:
        assert_same(total, expected.astype(np.float32))


@covers("activate2")
def test_registers_are_those_of_activation():
    @nki.jit
    def kernel(a):
        result, total = sbuf(a.shape, nl.float32), sbuf((P, 1), nl.float32)
        nisa.activation(result, nl.copy, load(a), reduce_op=nl.add, reduce_cmd=CMD.reset_reduce)
        nisa.activate2(
            result, nl.copy, load(a), 1.0, 0.0, nl.add, nl.bypass,
            reduce_op=nl.add, reduce_res=total, reduce_cmd=CMD.reduce,
        )  # fmt: skip
        return store(total)

    a = np.arange(P * 4, dtype=np.float32).reshape(P, 4)
    assert_same(run("activate2", kernel, a), (2 * a.sum(axis=1) + 4)[:, None])


@pytest.mark.parametrize(
    "code, text, change",
    [
        ("generation", "activate2", {"target": "trn2"}),
        ("operator-not-allowed", r"\(add, add\)", {"op0": "add", "op1": "add"}),
        ("operator-not-allowed", r"\(bypass, add\)", {"op0": "bypass"}),
        ("value-not-allowed", "reverse1 is True, op1 is bypass", {"op1": "bypass", "reverse1": 1}),
        ("missing-argument", "op1=add needs imm1", {"imm1": None}),
        ("value-not-allowed", "relu_param is given with exp", {"relu_param": 0.5}),
        ("operator-not-allowed", "reduce_op is multiply", {"reduce_op": "multiply"}),
        ("missing-argument", "needs reduce_op", {"reduce_cmd": CMD.reduce}),
        ("value-not-allowed", "reduce_cmd is load_reduce", {"reduce_cmd": CMD.load_reduce}),
    ],
)
def test_refusals(code, text, change):
    @nki.jit
    def kernel(a):
        given = {"imm0": 1.0, "imm1": 1.0, "op0": "multiply", "op1": "add"}
        given |= {name: value for name, value in change.items() if name != "target"}
        for name in ("op0", "op1", "reduce_op"):
            if name in given:
                given[name] = getattr(nl, given[name])
        result = sbuf(a.shape, nl.float32)
        nisa.activate2(dst=result, op=nl.exp, data=load(a), **given)
        return store(result)

    with pytest.raises(nki.NeuronError, match=text) as caught:
        kernel.trace(normal(508, (P, 4)), target=change.get("target", "trn3"))
    assert caught.value.code == code


def test_columns_of_one_dtype():
    @nki.jit
    def kernel(a, left, right):
        result = sbuf(a.shape, nl.float32)
        nisa.activate2(result, nl.exp, load(a), load(left), load(right), nl.multiply, nl.add)
        return store(result)

    with pytest.raises(nki.NeuronError, match="imm0 is float32, imm1 is bfloat16"):
        kernel.trace(np.zeros((P, 4), F32), np.zeros((P, 1), F32), np.zeros((P, 1), BF16))
