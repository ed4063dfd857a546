"""Kernels are compiled once for the same content, and again when anything in it changes."""

import dataclasses
import enum
import functools
import os
import sys
import types

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
import nki.trace.tracer
from nki.fingerprint import fingerprint

SCALE = 2.0


@dataclasses.dataclass
class Tiling:
    factor: float = 1.0
    steps: list = dataclasses.field(default_factory=list)


class Mode(enum.Enum):
    keep = 1
    negate = 2


def scaled(tile, factor):
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor * SCALE)


def make(offset=0.0):
    def kernel(a, tiling=None, mode=Mode.keep, bias=None):
        tile = nl.load(a)
        scaled(tile, (1.0 if tiling is None else tiling.factor) * (1 if mode is Mode.keep else -1))
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=offset)
        if bias is not None:
            nisa.tensor_tensor(dst=tile, data1=tile, data2=nl.load(bias), op=nl.add)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    return nki.jit(kernel, platform_target="trn2")


A = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def traces(monkeypatch):
    """How often a kernel has been traced."""
    count = types.SimpleNamespace(value=0)
    trace = nki.trace.tracer.trace

    def counting(*args, **kwargs):
        count.value += 1
        return trace(*args, **kwargs)

    monkeypatch.setattr(nki.trace.tracer, "trace", counting)
    return count


def test_a_plain_call_does_not_trace_twice(traces):
    kernel = make()
    np.testing.assert_array_equal(kernel(A), 2 * A)
    np.testing.assert_array_equal(kernel(a=A + 1), 2 * (A + 1))
    np.testing.assert_array_equal(nki.simulate(kernel)(A), 2 * A)
    np.testing.assert_array_equal(kernel(A, None, mode=Mode.keep), 2 * A)
    assert traces.value == 1
    np.testing.assert_array_equal(kernel[2](A), 2 * A)
    np.testing.assert_array_equal(kernel[2](A), 2 * A)
    assert traces.value == 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"a": A[:1]}, 2 * A[:1]),
        ({"a": A, "mode": Mode.negate}, -2 * A),
        ({"a": A, "tiling": Tiling(3.0)}, 6 * A),
        ({"a": A, "bias": A}, 3 * A),
    ],
    ids=["shape", "enumeration", "dataclass", "None"],
)
def test_another_argument_is_another_kernel(traces, arguments, expected):
    kernel = make()
    kernel(A)
    for _ in range(2):
        np.testing.assert_array_equal(kernel(**arguments), expected)
    assert traces.value == 2


def test_what_is_changed_in_place_counts(traces):
    kernel, tiling = make(), Tiling(1.0)
    np.testing.assert_array_equal(kernel(A, tiling), 2 * A)
    tiling.factor = 4.0
    np.testing.assert_array_equal(kernel(A, tiling), 8 * A)
    tiling.steps.append(1)
    kernel(A, tiling)
    assert traces.value == 3


def test_a_global_of_a_helper_counts(traces, monkeypatch):
    kernel = make()
    kernel(A)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    np.testing.assert_array_equal(kernel(A), 3 * A)
    monkeypatch.setitem(globals(), "scaled", lambda tile, factor: None)
    np.testing.assert_array_equal(kernel(A), A)
    assert traces.value == 3


def test_the_target_counts(traces, monkeypatch):
    kernel = nki.jit(make().function)
    for name in ("gen3", "gen4", "gen3"):
        monkeypatch.setenv("NKI_NC_VERSION", name)
        kernel(A)
    assert traces.value == 2


def key(function, **arguments):
    return fingerprint(getattr(function, "function", function), arguments)


def test_content_decides_and_not_identity():
    assert key(make(), a=A) == key(make(), a=A + 1)
    assert key(make(), a=A) != key(make(1.0), a=A)
    assert key(make(), t=Tiling(1, [2])) == key(make(), t=Tiling(1, [2]))
    assert key(make(), t=[1, {"k": (2,)}]) == key(make(), t=[1, {"k": (2,)}])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        ([1], (1,)),
        ([1, 2], [2, 1]),
        ({"a": 1}, {"b": 1}),
        (Tiling(1), Tiling(1.0)),
        (Mode.keep, 1),
        (A, A.astype(np.int32)),
        (nl.add, nl.subtract),
        (np.float32(1), np.float64(1)),
        (len, max),
    ],
    ids=str,
)
def test_arguments_that_differ(one, other):
    assert key(make(), x=one) != key(make(), x=other)


def test_a_value_without_content_is_not_kept(traces):
    class Opaque:
        __slots__ = ()

    assert key(make(), x=Opaque()) is None

    def kernel(a, x):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=a)
        return out

    kernel = nki.jit(kernel)
    for _ in range(2):
        np.testing.assert_array_equal(kernel(A, Opaque()), A)
    assert traces.value == 2


def test_a_list_that_holds_itself():
    one, other = [1], [1]
    one.append(one)
    other.append(other)
    assert key(make(), x=one) == key(make(), x=other)


SCALES = types.ModuleType("scales")
SCALES.inner = types.ModuleType("scales.inner")


class Filter:
    """An object with a function among its attributes, and a method with a special name."""

    def __init__(self, function, factor):
        self.function, self.factor = function, factor

    def __call__(self, tile):
        self.function(tile, self.factor * SCALE)


def by_attribute(tile):
    scaled(tile, by_attribute.factor)


def by_module(tile):
    scaled(tile, SCALES.inner.factor)


def by_import(tile):
    import scales.inner

    scaled(tile, scales.inner.factor)


def by_name(tile):
    from scales.inner import factor

    scaled(tile, factor)


def by_text(tile):
    scaled(tile, getattr(SCALES.inner, "factor"))  # noqa: B009


def by_globals(tile):
    scaled(tile, globals()["SCALES"].inner.factor)


class Meta(type):
    @property
    def factor(cls):
        return SCALES.inner.factor


class WithMeta(metaclass=Meta):
    pass


def by_metaclass(tile):
    scaled(tile, WithMeta.factor)


class Answering:
    """An object that has every attribute."""

    def __getattr__(self, name):
        return SCALES.inner.factor


ANSWERING = Answering()


def by_any_attribute(tile):
    scaled(tile, ANSWERING.factor)


def by_environment(tile):
    scaled(tile, float(os.environ["NKI_TEST_FACTOR"]))


CHANGED = {
    "attribute of a function": (by_attribute, lambda n: setattr(by_attribute, "factor", n)),
    "module in a module": (by_module, lambda n: setattr(SCALES.inner, "factor", n)),
    "module imported inside": (by_import, lambda n: setattr(SCALES.inner, "factor", n)),
    "name imported inside": (by_name, lambda n: setattr(SCALES.inner, "factor", n)),
    "text that names an attribute": (by_text, lambda n: setattr(SCALES.inner, "factor", n)),
    "globals()": (by_globals, lambda n: setattr(SCALES.inner, "factor", n)),
    "property of a class": (by_metaclass, lambda n: setattr(SCALES.inner, "factor", n)),
    "any attribute": (by_any_attribute, lambda n: setattr(SCALES.inner, "factor", n)),
    "environment": (by_environment, lambda n: os.environ.update(NKI_TEST_FACTOR=str(n))),
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_a_helper_reads_may_change(name, monkeypatch):
    for module in (SCALES, SCALES.inner):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("NKI_TEST_FACTOR", "1")
    monkeypatch.setitem(globals(), "SCALE", 1.0)
    helper, change = CHANGED[name]

    @nki.jit(platform_target="trn2")
    def kernel(a):
        tile = nl.load(a)
        helper(tile)
        return stored(tile)

    for factor in (2.0, 3.0):
        change(factor)
        np.testing.assert_array_equal(kernel(A), factor * A)


def test_objects_and_partial_applications_count_with_all_they_hold(monkeypatch):
    @nki.jit(platform_target="trn2")
    def kernel(a, filter):
        tile = nl.load(a)
        filter(tile)
        return stored(tile)

    for scale in (1.0, 4.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        for factor in (2.0, 3.0):
            # `scaled` multiplies by SCALE, and Filter does.
            expected = factor * scale * scale * A
            np.testing.assert_array_equal(kernel(A, Filter(scaled, factor)), expected)
            part = functools.partial(scaled, factor=factor * scale)
            np.testing.assert_array_equal(kernel(A, part), expected)


def stored(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out
