"""64-bit integers in pairs, and random bits, on the device: against the reference evaluator, and
against what XLA computes on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from operator_values import differing

from graph_compiler import GraphOptions, compile, evaluate, parse_text
from isa.errors import NeuronError

PAIRS = GraphOptions(native_int64="enabled", optimisation=1)
BINARY = (
    *("add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor"),
    *("shift-left", "shift-right-logical", "shift-right-arithmetic"),
    *("divide", "remainder"),
)
UNARY = ("not", "popcnt", "count-leading-zeros", "sign", "negate", "abs")
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
    unary = UNARY if type == "s64" else UNARY[:-1]
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
        f"kg = {type}[60] clamp(y, x, z)",
        f"kh = {type}[60] power(x, z)",
        "ki = f32[60] convert(x)",
        "kj = bf16[60] convert(x)",
        "kk = f16[60] convert(x)",
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
    text = (
        "HloModule m\nENTRY e {\n x = s64[3] parameter(0)\n ROOT r = u8[3,8] bitcast-convert(x)\n}"
    )
    with pytest.raises(NeuronError, match=r"`r`.*s64"):
        compile(parse_text(text), "trn2", PAIRS)


def test_floats_become_pairs() -> None:
    """Cut off; beyond the types their limits."""
    text = """HloModule m
    ENTRY e { x = f32[200] parameter(0)
      y = bf16[200] convert(x)
      a = s64[200] convert(x)
      b = u64[200] convert(x)
      c = s64[200] convert(y)
      ROOT t = (s64[200], u64[200], s64[200]) tuple(a, b, c) }"""
    rng = np.random.default_rng(3)
    x = (rng.standard_normal(200) * 2.0 ** rng.integers(-3, 70, 200)).astype(np.float32)
    x[:8] = [0, -0.0, np.inf, -np.inf, np.nan, 2.0**63, -(2.0**63), 2.0**64]
    module = parse_text(text)
    assert differing(compile(module, "trn2", PAIRS)(x), evaluate(module, x)) == ""


STRUCTURED = """HloModule m
plus { a = s64[] parameter(0)
  b = s64[] parameter(1)
  ROOT r = s64[] add(a, b) }
larger { a = s64[] parameter(0)
  b = s64[] parameter(1)
  ROOT r = s64[] maximum(a, b) }
times { a = s64[] parameter(0)
  b = s64[] parameter(1)
  ROOT r = s64[] multiply(a, b) }
last { a = s64[] parameter(0)
  ROOT r = s64[] parameter(1) }
before { a = s64[] parameter(0)
  b = s64[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT }
best { a = f32[] parameter(0)
  i = s64[] parameter(1)
  b = f32[] parameter(2)
  j = s64[] parameter(3)
  more = pred[] compare(b, a), direction=GT
  v = f32[] select(more, b, a)
  k = s64[] select(more, j, i)
  ROOT t = (f32[], s64[]) tuple(v, k) }
ENTRY e { x = s64[12,5] parameter(0)
  y = s64[5,7] parameter(1)
  i = s64[6,1] parameter(2)
  f = f32[12,5] parameter(3)
  zero = s64[] constant(0)
  one = s64[] constant(1)
  least = f32[] constant(-inf)
  start = s64[] reshape(k1)
  k1 = s64[1,1] slice(i), slice={[0:1], [0:1]}
  ROOT t = (RESULTS) tuple(NAMES) }"""

LINES = {
    "r0": "s64[5] reduce(x, zero), dimensions={0}, to_apply=plus",
    "r1": "s64[12] reduce(x, zero), dimensions={1}, to_apply=larger",
    "r2": "s64[] reduce(x, one), dimensions={0,1}, to_apply=times",
    "d": "s64[12,7] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "g": "s64[6,5] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, "
    "start_index_map={0}, index_vector_dim=1, slice_sizes={1,5}",
    "h": "f32[6,5] gather(f, i), offset_dims={1}, collapsed_slice_dims={0}, "
    "start_index_map={0}, index_vector_dim=1, slice_sizes={1,5}",
    "s0": "s64[12,5] scatter(x, i, g), update_window_dims={1}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=plus",
    "s1": "s64[12,5] scatter(x, i, g), update_window_dims={1}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=last",
    "v": "s64[3,5] dynamic-slice(x, start, zero), dynamic_slice_sizes={3,5}",
    "u": "s64[12,5] dynamic-update-slice(x, v, zero, start)",
    "o": "(s64[12,5], f32[12,5]) sort(x, f), dimensions={0}, to_apply=before",
    "w": "s64[12,5] reduce-window(x, zero), window={size=12x1 pad=11_0x0_0}, to_apply=plus",
    "i0": "s64[12,5] iota(), iota_dimension=1",
    "a": "(f32[12], s64[12]) reduce(f, i0, least, zero), dimensions={1}, to_apply=best",
}
"""Operations, of which later ones use earlier ones."""


def structured(names: list[str]) -> Any:
    """A graph of these operations."""
    types = {name: line.split(" ")[0] for name, line in LINES.items()}
    types |= {"o": "(s64[12,5], f32[12,5])", "a": "(f32[12], s64[12])"}
    head, tail = STRUCTURED.split("  start = ")
    first, second, root = tail.split("\n", 2)
    lines = [f"  {second.strip()}", f"  start = {first}"]
    lines += [f"  {name} = {line}" for name, line in LINES.items()]
    root = root.replace("RESULTS", ", ".join(types[name] for name in names))
    return parse_text(head + "\n".join(lines) + "\n" + root.replace("NAMES", ", ".join(names)))


def structured_inputs() -> list[Any]:
    rng = np.random.default_rng(5)
    x, y = words(rng, "s64", 60).reshape(12, 5), words(rng, "s64", 35).reshape(5, 7)
    x[3], x[7] = x[2], x[2]
    index = np.array([[2], [2], [2**40], [-1], [0], [11]])
    return [x, y, index, rng.standard_normal((12, 5)).astype(np.float32)]


@pytest.mark.parametrize("name", [name for name in LINES if name != "i0"])
def test_structured_operations_on_pairs_agree_with_the_reference(name: str) -> None:
    module, inputs = structured([name]), structured_inputs()
    assert differing(compile(module, "trn2", PAIRS)(*inputs), evaluate(module, *inputs)) == ""


@pytest.mark.parametrize("name", ["g", "h", "s1", "v", "u", "o", "a"])
def test_what_only_moves_64_bit_integers_needs_no_option(name: str) -> None:
    module, inputs = structured([name]), structured_inputs()
    assert differing(compile(module, "trn2")(*inputs), evaluate(module, *inputs)) == ""


@pytest.mark.parametrize("name", ["r0", "d", "s0", "w"])
def test_what_may_need_64_bits_needs_the_option(name: str) -> None:
    with pytest.raises(NeuronError, match="hlo-not-compiled") as caught:
        compile(structured([name]), "trn2")
    assert "--native-int64 enabled" in str(caught.value.hint)


def test_results_of_64_bits_that_fit_into_32_need_no_option() -> None:
    """A count of elements, a product of counts, and an index that is clamped."""
    text = """HloModule m
    plus { a = s64[] parameter(0)
      b = s64[] parameter(1)
      ROOT r = s64[] add(a, b) }
    ENTRY e { x = s64[9] parameter(0)
      zero = s64[] constant(0)
      eight = s64[] constant(8)
      k = s64[9] clamp(zero, x, eight)
      n = s64[9] iota(), iota_dimension=0
      same = pred[9] compare(k, n), direction=EQ
      each = s64[9] convert(same)
      count = s64[] reduce(each, zero), dimensions={0}, to_apply=plus
      product = s64[9] multiply(k, n)
      ROOT t = (s64[9], s64[], s64[9]) tuple(k, count, product) }"""
    module, x = parse_text(text), np.array([0, 1, 2**40, -5, 4, 2**63 - 1, -(2**63), 3, 8])
    assert differing(compile(module, "trn2")(x), evaluate(module, x)) == ""


def test_loops_that_count_in_64_bits_are_loops_of_the_device() -> None:
    text = LOOP.replace("s64[3]", "f32[3]").replace("s32[]", "s64[]")
    module, x = parse_text(text), np.array([3, -7, 0.5], np.float32)
    compiled = compile(module, "trn2")
    assert differing(compiled(x), evaluate(module, x)) == ""
    plain = compile(parse_text(LOOP.replace("s64[3]", "f32[3]")), "trn2")
    assert compiled.kernel.program.instruction_count == plain.kernel.program.instruction_count


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
