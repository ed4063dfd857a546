"""Mistakes in Python itself: operators, NumPy on tiles, misspelt names, loops that are left."""

import json
import math
import operator
import pickle
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
    ">": (lambda t: t > 0, "nl.greater(t, 0); nl.where"),
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

    kernel(A)


@pytest.mark.parametrize("mode", MODES)
def test_a_tensor_where_an_argument_may_be_a_number(mode):
    """It is compared with the default, which says nothing about what it holds: a warning."""

    def scaled(tile, scale=1.0):
        if scale != 1.0:
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=scale)

    def kernel(a):
        tile, scale = nl.load(a), nl.load(a[:, 0:1])
        scaled(tile, scale)
        return stored(tile)

    with pytest.warns(RuntimeWarning, match="'scale' != 1.0 is True whatever") as caught:
        result = nki.simulate(kernel, mode=mode)(2 * A)
    assert np.array_equal(result, 4 * A)
    assert [w.lineno for w in caught if "whatever" in str(w.message)] == [
        scaled.__code__.co_firstlineno + 1
    ]


def stored(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


VALUES = {
    "element ==": (lambda t: 1 if t[0, 0] == 0 else 2, "nl.equal"),
    "element !=": (lambda t: t[0, 0] != 0, "nl.not_equal"),
    "elements": (lambda t: t[0, 0] == t[0, 1], "nl.equal"),
    "truth of an element": (lambda t: bool(t[0, 0]), "register_load"),
    "if element": (lambda t: 1 if t[0, 0] else 2, "register_load"),
    "len": (len, "tile.shape[0]"),
    "float": (float, "register_load"),
    "int": (int, "register_load"),
    "range": (range, "register_load"),
    "round": (round, "register_load"),
    "math": (lambda t: math.sqrt(t), "register_load"),
    "index of a list": (lambda t: [1, 2][t], "register_load"),
    "sum()": (sum, "range(t.shape[0])"),
    ".sum": (lambda t: t.sum(), "nl.sum(tile"),
    ".T": (lambda t: t.T, "nl.transpose(tile)"),
    ".item": (lambda t: t.item(), "register_load"),
    ".mean": (lambda t: t.mean(), "nl.mean"),
    ".shpae": (lambda t: t.shpae, "Did you mean 'shape'?"),
    "iteration": (list, "range(t.shape[0])"),
    "in": (lambda t: 0 in t, "range(t.shape[0])"),
    "call": (lambda t: t(0), "tile[...]"),
    "format": (lambda t: f"{t:.2f}", "nl.device_print"),
    "np.asarray": (np.asarray, "nl.device_print"),
    "attribute set": (lambda t: setattr(t, "scale", 2), "beside it"),
    "shape set": (lambda t: setattr(t, "shape", (3, 2)), "tile.reshape"),
    "dtype set": (lambda t: setattr(t, "dtype", "int32"), "nl.copy(tile, dtype"),
    "offset of a part set": (lambda t: setattr(t[0:1, 0:2], "offset", 2), "tile.ap"),
    "name set": (lambda t: setattr(t, "name", "mine"), "name=name"),
    "pickle": (pickle.dumps, "save(path)"),
    "json": (json.dumps, "a function of nki.language"),
    "shape deleted": (lambda t: delattr(t, "shape"), "tile.reshape"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("memory", ["tile", "hbm"])
@pytest.mark.parametrize("name", VALUES)
def test_values_of_a_tensor_are_refused_with_a_way_out(name, memory, mode):
    use, way_out = VALUES[name]

    def kernel(a):
        use(nl.load(a) if memory == "tile" else a)
        return a

    error = refusal(kernel, mode)
    assert way_out in error.hint
    assert f"{__file__}:{error.location.line} in " in str(error)


def test_a_tile_made_here_is_not_compared_with_a_number():
    def kernel(a):
        tile = nl.load(a)
        if tile == 0:
            return a
        return stored(tile)

    for mode in MODES:
        assert "nl.equal" in refusal(kernel, mode).hint


OF_REGISTERS = {
    "==": (lambda r: r == 0, "register-branch"),
    "!=": (lambda r: r != 0, "register-branch"),
    "bool": (bool, "register-branch"),
    "len": (len, "register-arithmetic"),
    "float": (float, "register-arithmetic"),
    "int": (int, "register-arithmetic"),
    "iteration": (list, "register-arithmetic"),
    ".item": (lambda r: r.item(), "unknown-name"),
    "value set": (lambda r: setattr(r, "value", 1), "not-supported"),
    "bound set": (lambda r: setattr(r, "upper", 1), "not-supported"),
    ".sum": (lambda r: r.sum(), "unknown-name"),
    "[]": (lambda r: r[0], "register-arithmetic"),
    "np.asarray": (np.asarray, "register-arithmetic"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", OF_REGISTERS)
def test_values_of_a_register_are_refused(name, mode):
    use, code = OF_REGISTERS[name]

    def kernel(a):
        use(nisa.register_alloc(3))
        return a

    error = refusal(kernel, mode)
    assert error.code == code and error.hint
    assert f"{__file__}:{error.location.line} in " in str(error)


@pytest.mark.parametrize("mode", MODES)
def test_a_misspelt_name(mode):
    def kernel(a):
        nl.laod(a)

    error = refusal(kernel, mode, kind=AttributeError)
    assert error.code == "unknown-name" and "Did you mean: 'load'?" in str(error)


KEYWORDS = {
    "misspelt": (lambda a: nl.load(a, dtyp=nl.float32), "unknown-argument", "Did you mean dtype="),
    "gone": (lambda a: nl.load(a, mask=1), "unknown-argument", "affine_select"),
    "missing": (lambda a: nl.ndarray((2, 3)), "missing-argument", "It is ndarray(shape, dtype"),
    "too many": (lambda a: nl.exp(nl.load(a), 1, 2, 3), "unknown-argument", "(x, dtype"),
    "of a method": (lambda a: a.reshpae((3, 2)), "unknown-name", "'reshape'"),
    "of an operation": (lambda a: nisa.dma_copy(dts=a, src=a), "unknown-argument", "dst=?"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", KEYWORDS)
def test_arguments_that_a_function_does_not_have(name, mode):
    use, code, way_out = KEYWORDS[name]
    error = refusal(lambda a: use(a), mode)
    assert error.code == code and way_out in error.hint


def test_the_authors_own_functions_keep_their_errors():
    def load(a, rows):
        return nl.load(a[rows])

    error = refusal(lambda a: load(a, mask=1), kind=TypeError)
    assert not isinstance(error, nki.NeuronError)


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
