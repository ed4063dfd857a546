"""64-bit integers in pairs, and random bits, on the device: against the reference evaluator, and
against what XLA computes on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from operator_values import differing

from graph_compiler import GraphOptions, compile, evaluate, parse_text
from isa.errors import NeuronError

PAIRS = GraphOptions(native_int64="enabled")
BINARY = (
    *("add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor"),
    *("shift-left", "shift-right-logical", "shift-right-arithmetic"),
)
UNARY = ("not", "negate", "abs")
DIRECTIONS = ("LT", "GT", "GE", "LE", "EQ", "NE")


def words(rng: np.random.Generator, type: str, count: int) -> Any:
    """Numbers of all sizes, limits and small ones among them."""
    bits = rng.integers(0, 1 << 64, count, np.uint64) >> rng.integers(0, 64, count, np.uint64)
    bits[:6] = [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1]
    return bits.view(np.int64 if type == "s64" else np.uint64)


@pytest.mark.parametrize("type", ["s64", "u64"])
def test_operations_on_pairs_agree_with_the_reference(type: str) -> None:
    lines = [f"r{i} = {type}[60] {op}(x, {'z' if 'shift' in op else 'y'})"
             for i, op in enumerate(BINARY)]  # fmt: skip
    unary = UNARY if type == "s64" else UNARY[:2]
    lines += [f"u{i} = {type}[60] {op}(x)" for i, op in enumerate(unary)]
    lines += [f"c{d} = pred[60] compare(x, y), direction={d}" for d in DIRECTIONS]
    lines += [
        f"k0 = {type}[5,12] reshape(x)",
        f"k1 = {type}[12,5] transpose(k0), dimensions={{1,0}}",
        f"k2 = {type}[120] concatenate(x, y), dimensions={{0}}",
        f"k3 = {type}[60] select(cLT, x, y)",
        "k4 = s32[60] convert(x)",
        "k5 = u16[60] convert(x)",
        "k6 = pred[60] convert(x)",
        f"k7 = {type}[60] convert(k5)",
        "k8 = s16[60] convert(x)",
        f"k9 = {type}[60] convert(k8)",
        "ka = u32[60,2] bitcast-convert(x)",
        f"kb = {type}[60] bitcast-convert(ka)",
        f"kc = {type}[5,12] iota(), iota_dimension=1",
        f"kd = {type}[5,12] add(kc, k0)",
        f"ke = {type}[60] constant({{{','.join(str(7**i % 2**62) for i in range(60))}}})",
        f"kf = {type}[60] subtract(ke, x)",
    ]
    names = [line.split(" =")[0] for line in lines]
    shapes = [line.split("= ")[1].split(" ")[0] for line in lines]
    given = [f"{name} = {type}[60] parameter({i})" for i, name in enumerate("xyz")]
    root = f"ROOT t = ({', '.join(shapes)}) tuple({', '.join(names)})"
    module = parse_text("\n".join(["HloModule m", "ENTRY e {", *given, *lines, root, "}"]))
    rng = np.random.default_rng(1)
    x, y = words(rng, type, 60), words(rng, type, 60)
    y[::7] = x[::7]
    z = rng.integers(-2 if type == "s64" else 0, 70, 60).astype(x.dtype)
    z[:4] = [0, 32, 63, 64]
    found, expected = compile(module, "trn2", PAIRS)(x, y, z), evaluate(module, x, y, z)
    for name, one, other in zip(names, found, expected):
        assert differing([one], [other]) == "", name


LOOP = """HloModule m
body { s = (s32[], s64[3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = s64[3] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = s64[3] multiply(x, x)
  ROOT t = (s32[], s64[3]) tuple(j, y) }
condition { s = (s32[], s64[3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(4)
  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY e { x = s64[3] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], s64[3]) tuple(zero, x)
  w = (s32[], s64[3]) while(s), condition=condition, body=body
  ROOT r = s64[3] get-tuple-element(w), index=1 }"""


def test_pairs_go_through_loops() -> None:
    module, x = parse_text(LOOP), np.array([3, -7, 2**40 + 1])
    assert differing(compile(module, "trn2", PAIRS)(x), evaluate(module, x)) == ""


def test_without_the_option_what_does_not_fit_is_refused() -> None:
    text = "HloModule m\nENTRY e {\n x = s64[3] parameter(0)\n ROOT r = s64[3] add(x, x)\n}"
    with pytest.raises(NeuronError, match="hlo-not-compiled"):
        compile(parse_text(text), "trn2")


def test_an_operation_without_a_rule_is_named() -> None:
    text = "HloModule m\nENTRY e {\n x = s64[3] parameter(0)\n ROOT r = s64[3] divide(x, x)\n}"
    with pytest.raises(NeuronError, match=r"`r`.*s64"):
        compile(parse_text(text), "trn2", PAIRS)


@pytest.mark.parametrize(
    ("algorithm", "type", "state"),
    [
        ("three_fry", "u32[4,6]", [3, 2**32 - 2]),
        ("three_fry", "f32[7,5]", [2**63 + 5, 2**64 - 2]),
        ("three_fry", "u64[5]", [2**63 + 5, 2**64 - 2]),
        ("philox", "u32[5,7]", [2**63 + 5, 2**64 - 2]),
        ("philox", "u64[3,3]", [5, 2**64 - 2, 2**64 - 1]),
        ("default", "s8[]", [1, 2]),
        ("default", "pred[9]", [1, 2]),
    ],
)
def test_random_bits_are_those_of_the_reference(
    algorithm: str, type: str, state: list[int]
) -> None:
    shape = f"u64[{len(state)}]"
    module = parse_text(
        f"HloModule m\nENTRY e {{\n s = {shape} parameter(0)\n ROOT r = ({shape}, {type}) "
        f"rng-bit-generator(s), algorithm=rng_{algorithm}\n}}"
    )
    given = np.array(state, np.uint64)
    assert differing(compile(module, "trn2")(given), evaluate(module, given)) == ""


def test_random_bits_are_those_of_jax() -> None:
    jax = pytest.importorskip("jax", reason="needs jax (the extra `jax`)")
    from graph_compiler import load

    algorithms = jax.lax.RandomAlgorithm

    def draw(words: Any) -> Any:
        made = jax.lax.rng_bit_generator(words, (3, 10), algorithm=algorithms.RNG_THREE_FRY)
        return *made, *jax.lax.rng_bit_generator(words, (7,), algorithm=algorithms.RNG_PHILOX)

    def uniform(words: Any) -> Any:
        return jax.random.uniform(jax.random.wrap_key_data(words, impl="rbg"), (4, 9))

    words = np.array([1, 2**32 - 1, 3, 2**31], np.uint32)
    for function in (draw, uniform):
        compiled = compile(load(jax.jit(function).lower(words)), "trn2")
        expected = [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(function)(words))]
        assert differing(compiled(words), expected) == ""
