"""f8e4m3fn on targets without it: every code, and roundings, against ml_dtypes."""

from __future__ import annotations

import conformance_models
import ml_dtypes
import numpy as np
import pytest

from graph_compiler import GraphOptions, compile, load, parse_text

FN = ml_dtypes.float8_e4m3fn
EMULATED = GraphOptions(emulate_fp8_e4m3fn=True)
CODES = np.arange(256, dtype=np.uint8)


def run(text: str, *inputs: np.ndarray, target: str = "trn2") -> list[np.ndarray]:
    return compile(parse_text(f"HloModule m\nENTRY e {{ {text} }}"), target, EMULATED)(*inputs)


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_every_code_is_its_number(target: str) -> None:
    text = "x = f8e4m3fn[256] parameter(0)\n ROOT r = f32[256] convert(x)"
    (found,) = run(text, CODES.view(FN), target=target)
    np.testing.assert_array_equal(found, CODES.view(FN).astype(np.float32))


def test_every_number_is_its_code() -> None:
    text = """x = f8e4m3fn[256] parameter(0)
    y = f8e4m3fn[2,128] reshape(x)
    ROOT r = f8e4m3fn[2,128] copy(y)"""
    (found,) = run(text, CODES.view(FN))
    assert found.dtype == FN
    known = (CODES & 0x7F) != 0x7F  # NaN may lose its sign
    np.testing.assert_array_equal(found.reshape(-1).view(np.uint8)[known], CODES[known])
    assert np.isnan(found.reshape(-1)[~known].astype(np.float32)).all()


def test_numbers_are_rounded_once() -> None:
    exact = CODES.view(FN).astype(np.float32)
    exact = np.sort(exact[np.isfinite(exact)])
    ties = (exact[1:] + exact[:-1]) / 2
    near = [np.nextafter(ties, np.float32(side)) for side in (np.inf, -np.inf)]
    edge = np.array([464, 464.001, 480, 1e9, np.inf, -465, np.nan, 1e-9, -0.0], np.float32)
    x = np.concatenate([exact, ties, *near, edge])
    text = f"x = f32[{x.size}] parameter(0)\n ROOT r = f8e4m3fn[{x.size}] convert(x)"
    (found,) = run(text, x)
    expected = x.astype(FN).astype(np.float32)
    np.testing.assert_array_equal(found.astype(np.float32), expected)


def test_constants_codes_and_choices() -> None:
    text = """x = f8e4m3fn[3] parameter(0)
    c = f8e4m3fn[3] constant({448, -0.015625, 320})
    m = f8e4m3fn[3] maximum(x, c)
    b = u8[3] bitcast-convert(m)
    s = f8e4m3fn[3] add(x, c)
    u = u8[3] parameter(1)
    d = f8e4m3fn[3] bitcast-convert(u)
    ROOT r = (u8[3], f8e4m3fn[3], f8e4m3fn[3]) tuple(b, s, d)"""
    x, c = np.array([1, -2, 416], FN), np.array([448, -0.015625, 320], FN)
    u = np.array([0x7E, 0xFE, 0x01], np.uint8)
    codes, total, named = run(text, x, u)
    np.testing.assert_array_equal(codes, np.array([448, -0.015625, 416], FN).view(np.uint8))
    expected = (x.astype(np.float32) + c.astype(np.float32)).astype(FN)
    np.testing.assert_array_equal(total.astype(np.float32), expected.astype(np.float32))
    np.testing.assert_array_equal(named, u.view(FN))


@pytest.mark.skipif(
    not (conformance_models.MODELS / "index.json").exists(), reason="needs the conformance models"
)
def test_the_model_that_needs_it() -> None:
    model = conformance_models.models()["fp8_int8_mlp_infer"]
    compiled = compile(load(model.path), "trn2", EMULATED)
    found = compiled(*conformance_models.inputs_of(model))
    assert conformance_models.disagreements(model, found) == []
