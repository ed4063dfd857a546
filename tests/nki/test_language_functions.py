"""Functions of `nki.language` that are not element-wise, against NumPy formulas."""

import inspect
import json
from pathlib import Path

import numpy as np
import pytest
from language_references import RNG, random, run

import nki.language as nl
from isa.errors import NeuronError
from nki.language.operators import OPERATORS

FACTS = Path(__file__).resolve().parents[3] / "shared" / "facts" / "nki_api.json"


@pytest.fixture(scope="module")
def documented():
    if not FACTS.exists():
        pytest.skip(f"the documented API is not here: {FACTS}")
    return json.loads(FACTS.read_text())["modules"]["nki.language"]


def test_every_documented_name_exists(documented):
    assert [name for name in documented if not hasattr(nl, name)] == []
    assert [name for name in documented if name not in nl.__all__] == []


def test_signatures_of_element_wise_functions(documented):
    for name, operator in OPERATORS.items():
        expected = documented[name].get("params", [])
        actual = [
            (p.name, None if p.default is inspect.Parameter.empty else repr(p.default))
            for p in inspect.signature(operator).parameters.values()
        ]
        assert actual == [(p["name"], p["default"]) for p in expected], name
        if expected:  # Python agrees with what is shown
            call = inspect.signature(type(operator).__call__).parameters
            assert list(call)[1:] == [p["name"] for p in expected]


def test_a_number_is_for_python_to_compute_with():
    with pytest.raises(NeuronError, match=r"(?s)not-a-tensor.*numbers that are known.*math\.exp"):
        run(lambda a: nl.sqrt(2.0), random(4, 3))


def test_modes_agree_bit_for_bit():
    x = random(32, 40)

    def body(a):
        turned = nl.copy(nl.transpose(nl.softmax(a)))
        products = nl.matmul(turned, a, transpose_x=False)
        scale = nl.rms_norm(nl.copy(products), nl.broadcast_to(products[0:1, :], (40, 40)), 1, 40)
        return nl.add(scale, nl.var(scale, 1))

    device, *others = (run(body, x, mode=m) for m in ("device", "reference", "eager"))
    for other in others:
        np.testing.assert_array_equal(device.view(np.uint32), other.view(np.uint32))


def test_names_of_the_first_generation_say_what_to_write():
    for name, part in (
        ("par_dim", "partition dimension"),
        ("arange", "nl.ds"),
        ("nc", "kernel[2]"),
    ):
        assert not hasattr(nl, name)
        with pytest.raises(AttributeError, match=name) as caught:
            getattr(nl, name)
        assert part in str(caught.value)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        nl.nothing  # noqa: B018


def test_truth_values():
    a, b = (RNG.integers(0, 2, (4, 6)).astype(bool) for _ in range(2))
    for body, expected in (
        (nl.logical_and, a & b),
        (nl.logical_xor, a ^ b),
        (lambda x, y: nl.logical_not(x), ~a),
        (nl.less, a < b),
        (nl.maximum, a | b),
        (lambda x, y: nl.where(x, y, x), np.where(a, b, a)),
        (lambda x, y: nl.all(x, 1), a.all(axis=1, keepdims=True)),
        (lambda x, y: nl.transpose(x), a.T),
        (lambda x, y: nl.greater(nl.copy(x, nl.float32), 0.5, dtype=nl.bool_), a),
        (lambda x, y: nl.ones((2, 3), nl.bool_), np.ones((2, 3), bool)),
    ):
        actual = run(body, a, b)
        assert actual.dtype == bool
        np.testing.assert_array_equal(actual, expected)
    counted = run(lambda x, y: nl.sum(x, 1, dtype=nl.float32), a, b)
    np.testing.assert_array_equal(counted, a.sum(axis=1, keepdims=True))
    assert run(lambda x, y: nl.add(x, nl.copy(y, nl.int16)), a, b).dtype == np.int16


def test_tfloat32_has_ten_bits():
    x = random(4, 50)

    def body(a):
        tile = nl.copy(a, dtype=nl.tfloat32)
        assert nl.exp(tile).dtype == "tfloat32"
        return nl.copy(nl.exp(tile), dtype=nl.float32)

    short = run(lambda a: nl.copy(nl.copy(a, dtype=nl.tfloat32), dtype=nl.float32), x)
    assert not np.any(short.view(np.uint32) & 0x1FFF)
    np.testing.assert_allclose(short, x, rtol=2.0**-11)
    np.testing.assert_allclose(run(body, x), np.exp(short), rtol=2.0**-10)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_earlier_generations_give_the_same(target):
    x, w = random(32, 40), random(32, 40)
    half = random(32, 40, dtype="bfloat16")
    indices = RNG.integers(0, 40, (32, 9)).astype(np.uint32)
    for body, inputs in (
        (nl.softmax, (x,)),
        (lambda a, b: nl.rms_norm(a, b, 1, 40), (x, w)),
        (lambda a, b: nl.add(nl.mean(a, 1), nl.var(b, 1)), (x, w)),
        (lambda a, b: nl.where(nl.less(a, b), a, 7.0), (x, w)),
        (nl.gather_flattened, (x, indices)),
        (lambda a: nl.broadcast_to(a[0:1, :], (100, 40)), (half,)),
        (lambda a: nl.transpose(a), (half,)),
        (lambda a, b: nl.matmul(a, nl.copy(nl.transpose(b))), (x, w)),
        (lambda a: nl.shared_identity_matrix(16, dtype=nl.bfloat16), (x,)),
        (lambda a: nl.prod(nl.max(a.reshape((32, 10, 4)), 2), 1), (x,)),
    ):
        expected = run(body, *inputs)
        actual = run(body, *inputs, target=target)
        np.testing.assert_array_equal(actual.view(np.uint8), expected.view(np.uint8))
