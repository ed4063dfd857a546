"""Kernels that are no plain functions, and containers of results."""

import functools
import inspect

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl

A = np.arange(6, dtype=np.float32).reshape(2, 3)
MODES = ["device", "reference", "eager"]


def stored(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def affine(a, scale, offset=0.0):
    tile = nl.load(a)
    nisa.tensor_scalar(tile, tile, nl.multiply, scale, op1=nl.add, operand1=offset)
    return stored(tile)


class Affine:
    scale = 2.0

    def __init__(self, offset):
        self.offset = offset

    @nki.jit
    def kernel(self, a):
        return affine(a, self.scale, self.offset)

    def __call__(self, a):
        return affine(a, self.scale, self.offset)

    launched = nki.jit(affine)


def negated_before(function):
    @functools.wraps(function)
    def kernel(a, *args):
        tile = nl.load(a)
        nisa.tensor_scalar(tile, tile, nl.multiply, -1.0)
        return function(stored(tile), *args)

    return kernel


KERNELS = {
    "partial": (lambda: nki.jit(functools.partial(affine, offset=1.0)), (3.0,), 3 * A + 1),
    "partial of a kernel": (lambda: functools.partial(nki.jit(affine), scale=3.0), (), 3 * A),
    "method": (lambda: Affine(1.0).kernel, (), 2 * A + 1),
    "object": (lambda: nki.jit(Affine(1.0)), (), 2 * A + 1),
    "no method": (lambda: Affine(1.0).launched, (3.0,), 3 * A),
    "decorated": (lambda: nki.jit(negated_before(affine)), (3.0,), -3 * A),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", KERNELS)
def test_what_can_be_a_kernel(name, mode):
    make, arguments, expected = KERNELS[name]
    np.testing.assert_array_equal(nki.simulate(make(), mode=mode)(A, *arguments), expected)


def test_a_method_sees_its_instance_change():
    shift = Affine(1.0)
    np.testing.assert_array_equal(shift.kernel(A), 2 * A + 1)
    shift.offset = 5.0
    np.testing.assert_array_equal(shift.kernel(A), 2 * A + 5)


def test_a_partial_application_keeps_the_cores():
    def kernel(a, factor):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        rows = nl.ds(nl.program_id(0), 1)
        nl.store(out[rows], nl.multiply(nl.load(a[rows]), factor * nl.num_programs()))
        return out

    launched = functools.partial(nki.jit(kernel, platform_target="trn2")[2], factor=3.0)
    np.testing.assert_array_equal(nki.simulate(launched)(A), 6 * A)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("container", [tuple, list])
def test_results_come_in_the_container_that_is_returned(container, count, mode):
    def kernel(a):
        return container(affine(a, float(n)) for n in range(count))

    results = nki.simulate(kernel, mode=mode)(A)
    assert type(results) is container and len(results) == count
    np.testing.assert_array_equal(results[-1], (count - 1) * A)


def test_results_of_compiled_kernels():
    compiled = nki.compile(lambda a: (affine(a, 2.0),), nki.TensorSpec(A.shape, nl.float32))
    (result,) = compiled(A)
    np.testing.assert_array_equal(result, 2 * A)
    (result,), _ = compiled.profile(A)
    np.testing.assert_array_equal(result, 2 * A)


class Switch(nl.NKIObject):
    position: int
    on: bool = False

    def toggle(self):
        self.on = not self.on


class Dimmer(Switch):
    level: float

    def __post_init__(self):
        self.half = self.on and self.level / 2


class Counter(nl.NKIObject):
    count: int

    def __init__(self, count):
        super().__init__(started=True)
        assert not hasattr(self, "count")
        self.count = count

    def __post_init__(self):
        raise AssertionError("the class initialises itself")


def test_objects_with_an_initialiser_of_their_own():
    counter = Counter(3)
    assert counter.count == 3 and counter.started


def test_objects_without_an_initialiser_of_their_own():
    """SDK nki/get-started/nki-language-guide.rst, "Class Support"."""

    @nki.jit
    def kernel(a, switch):
        local = Switch(3)
        local.toggle()
        assert (local.position, local.on, switch.position, switch.on) == (3, True, 4, True)
        return affine(a, float(local.position), float(switch.position))

    np.testing.assert_array_equal(kernel(A, Switch(4, on=True)), 3 * A + 4)
    assert Switch().position is None and Switch(position=2, other=5).other == 5
    dimmer = Dimmer(1, True, 0.5)
    assert (dimmer.position, dimmer.level, dimmer.half) == (1, 0.5, 0.25)
    for wrong in (lambda: Switch(1, True, 2), lambda: Switch(1, position=1)):
        with pytest.raises(TypeError, match="Switch"):
            wrong()


@nki.jit
def doubled(a):
    tile = nl.load(a)
    nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
    return stored(tile)


def test_harnesses_find_the_function():
    """nki-autotune executes `kernel.func`'s source, rewritten, among its globals."""
    source = inspect.getsource(doubled.func).replace("2.0", "3.0")
    names = dict(doubled.func.__globals__)
    exec(source, names)
    np.testing.assert_array_equal(nki.simulate(names["doubled"])(A), 3 * A)
    assert str(inspect.signature(doubled[2].func)) == "(a)"


def test_what_is_no_kernel():
    for make in (nki.jit, nki.simulate, nki.profile):
        for value in (3, "trn2"):
            with pytest.raises(nki.NeuronError, match=f"{value!r} is no kernel"):
                make(value)


@pytest.mark.parametrize("cores", [0, 3, 2.0, "2", None, [2], (2, 2)])
def test_what_is_no_number_of_cores(cores):
    with pytest.raises(nki.NeuronError, match="1 or 2 physical cores"):
        nki.jit(lambda a: a)[cores]
