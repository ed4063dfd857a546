"""Mistakes in Python itself: operators, NumPy on tiles, misspelt names, loops that are left."""

import json
import operator
import traceback

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl

A = np.ones((2, 3), np.float32)
MODES = ["device", "reference", "eager"]

OPERATORS = {
    "+": (lambda t: t + 1.0, "nl.add"),
    "reversed -": (lambda t: 1.0 - t, "nl.subtract"),
    "+=": (lambda t: operator.iadd(t, 1), "nl.add"),
    "//": (lambda t: t // 2, "nl.floor(nl.divide"),
    "@": (lambda t: t @ t, "nl.matmul"),
    "-": (lambda t: -t, "nl.negative"),
    "abs()": (abs, "nl.abs"),
    ">": (lambda t: t > 0, "nl.greater(a, b); nl.where"),
    "np.exp": (np.exp, "nl.exp"),
    "np.divide": (lambda t: np.divide(2.0, t), "nl.divide"),
    "np.max": (np.max, "nl.max"),
    "np.linalg.norm": (np.linalg.norm, "a function of nki.language"),
    "a NumPy number": (lambda t: np.float32(2) * t, "nl.multiply"),
}


def refusal(kernel, mode="device", kind=nki.NeuronError):
    with pytest.raises(kind) as caught:
        nki.simulate(kernel, mode=mode)(A)
    return caught.value


@pytest.mark.parametrize("mode", ["device", "eager"])
@pytest.mark.parametrize("name", OPERATORS)
def test_what_computes_on_tensors_is_named(name, mode):
    use, function = OPERATORS[name]

    def kernel(a):
        use(nl.load(a))

    error = refusal(kernel, mode)
    assert error.code == "not-supported" and function in error.hint
    assert error.location.function == kernel.__name__ or "lambda" in error.location.function


def test_tensors_are_compared_by_identity():
    @nki.jit
    def kernel(a):
        tile = nl.load(a)
        assert tile == tile and tile != a and tile is not None and {tile: 1}[tile] == 1
        assert tile != "float32" and tile not in (None, a)
        assert tile != 1.0 and tile != 0  # an argument that may be a number or a tensor

    kernel(A)


def test_a_misspelt_name():
    def kernel(a):
        nl.laod(a)

    error = refusal(kernel, kind=AttributeError)
    assert "Did you mean: 'load'?" in str(error)


MISTAKES = {
    "misspelt": (AttributeError, lambda a: nisa.dma_cpoy(a, a)),
    "removed": (AttributeError, lambda a: nl.arange(3)),
    "no such argument": (TypeError, lambda a: nl.load(a, mask=1)),
    "library": (np.linalg.LinAlgError, lambda a: np.linalg.inv(np.zeros((2, 2)))),
    "own": (ZeroDivisionError, lambda a: 1 / 0),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MISTAKES)
def test_tracebacks_of_python_errors_show_no_frames_of_the_package(name, mode):
    kind, mistake = MISTAKES[name]

    def kernel(a):
        mistake(a)

    frames = traceback.extract_tb(refusal(kernel, mode, kind).__traceback__)
    assert [f.name for f in frames[:2]] == ["refusal", "kernel"] and frames[2].name == "<lambda>"


def test_defects_keep_all_frames(monkeypatch):
    import nki.trace.tracer

    monkeypatch.setattr(nki.trace.tracer, "results_of", json.dumps)  # fails in the library
    error = refusal(lambda a: a, kind=TypeError)
    assert "tracer.py" in "".join(traceback.format_tb(error.__traceback__))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loop", ["dynamic", "fori"])
def test_a_loop_that_is_left_before_the_result_is_made(loop, mode):
    """What follows looks like the loop's body; it is the `break` that is named."""

    def dynamic(a):
        for _ in nl.dynamic_range(3):
            nisa.tensor_copy(dst=nl.load(a), src=nl.load(a))
            break
        return nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)

    def fori(a):
        def body(i):
            raise StopIteration

        try:
            nl.fori_loop(0, 3, body)
        except StopIteration:
            return nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)

    error = refusal({"dynamic": dynamic, "fori": fori}[loop], mode)
    assert error.code == "loop-break" and error.location.function == loop
