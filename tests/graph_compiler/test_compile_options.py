"""Options of `graph_compiler.compile`, each by what it changes in results, types or errors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from test_neuronx_cc import LAYER

from graph_compiler import GraphOptions, compile, parse_text
from graph_compiler.lower.assemble import assemble
from graph_compiler.lower.limits import PlanLimits, plans
from isa.errors import NeuronError
from isa.target import resolve
from nki.ir.text.printer import print_kernel
from simulator.timing import simulate

DOT = """HloModule product
ENTRY e {
  x = f32[8,16] parameter(0)
  y = f32[16,4] parameter(1)
  d = f32[8,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[8,4] parameter(2)
  ROOT r = f32[8,4] multiply(d, z)
}"""


def arguments() -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [
        random.standard_normal(shape).astype(np.float32) for shape in ((8, 16), (16, 4), (8, 4))
    ]


def rounded(array: np.ndarray, dtype: type) -> np.ndarray:
    return array.astype(dtype).astype(np.float64)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("bf16", ml_dtypes.bfloat16), ("fp16", np.float16), ("fp8_e4m3", ml_dtypes.float8_e4m3)],
)
def test_matmult_rounds_operands_of_products_and_nothing_else(name: str, dtype: type) -> None:
    x, y, z = arguments()
    options = GraphOptions(auto_cast="matmult", auto_cast_type=name)
    (found,) = compile(parse_text(DOT), "trn2", options)(x, y, z)
    expected = (rounded(x, dtype) @ rounded(y, dtype)) * z
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)
    assert np.abs(found - (x.astype(np.float64) @ y) * z).max() > 1e-5


def tf32(array: np.ndarray) -> np.ndarray:
    """Rounded to 10 bits of mantissa by adding and subtracting 2^13 times the number."""
    return (array * np.float32(2**13 + 1) - array * np.float32(2**13)).astype(np.float64)


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_tf32_keeps_ten_bits_of_mantissa(target: str) -> None:
    """Of constants too."""
    x, y, z = arguments()
    options = GraphOptions(auto_cast="matmult", auto_cast_type="tf32")
    weights = ", ".join("{" + ", ".join(map(str, row)) + "}" for row in y.tolist())
    frozen = DOT.replace("y = f32[16,4] parameter(1)", f"y = f32[16,4] constant({{ {weights} }})")
    frozen = frozen.replace("parameter(2)", "parameter(1)")
    expected = (tf32(x) @ tf32(y)) * z
    for text, given in ((DOT, (x, y, z)), (frozen, (x, z))):
        (found,) = compile(parse_text(text), target, options)(*given)
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)
    assert np.abs(expected - (x.astype(np.float64) @ y) * z).max() > 1e-4


def test_tf32_is_no_type_of_a_file() -> None:
    with pytest.raises(NeuronError):
        parse_text("HloModule m\nENTRY e { ROOT x = tf32[4] parameter(0) }")


def test_without_casts_products_are_of_fp32() -> None:
    x, y, z = arguments()
    (found,) = compile(parse_text(DOT), "trn2")(x, y, z)
    np.testing.assert_allclose(found, (x.astype(np.float64) @ y) * z, rtol=3e-6, atol=3e-6)


def test_all_rounds_other_operations_too_and_keeps_the_types_of_results() -> None:
    x, y, z = arguments()
    options = GraphOptions(auto_cast="all")
    (found,) = compile(parse_text(DOT), "trn2", options)(x, y, z)
    bf16 = ml_dtypes.bfloat16
    product = rounded(rounded(x, bf16) @ rounded(y, bf16), bf16)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, product * rounded(z, bf16), rtol=2**-7, atol=2**-7)
    np.testing.assert_array_equal(found, rounded(found, bf16))


def test_all_keeps_sums_in_fp32() -> None:
    text = """HloModule sums
    add { a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT r = f32[] add(a, b) }
    ENTRY e { x = f32[2,8192] parameter(0)
      zero = f32[] constant(0)
      ROOT r = f32[2] reduce(x, zero), dimensions={1}, to_apply=add }"""
    compiled = compile(parse_text(text), "trn2", GraphOptions(auto_cast="all"))
    (found,) = compiled(np.full((2, 8192), 1.0078125, np.float32))
    np.testing.assert_array_equal(found, 8256.0)  # sums in bf16 would stop at 256


def test_all_reaches_into_loops_and_leaves_what_they_carry() -> None:
    text = """HloModule loop
    body { s = (s32[], f32[4]) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      x = f32[4] get-tuple-element(s), index=1
      one = s32[] constant(1)
      j = s32[] add(i, one)
      third = f32[] constant(0.3333)
      t = f32[4] broadcast(third), dimensions={}
      y = f32[4] multiply(x, t)
      ROOT r = (s32[], f32[4]) tuple(j, y) }
    condition { s = (s32[], f32[4]) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      n = s32[] constant(2)
      ROOT r = pred[] compare(i, n), direction=LT }
    ENTRY e { x = f32[4] parameter(0)
      zero = s32[] constant(0)
      s = (s32[], f32[4]) tuple(zero, x)
      w = (s32[], f32[4]) while(s), condition=condition, body=body
      ROOT r = f32[4] get-tuple-element(w), index=1 }"""
    x = np.array([1, 3, 5, 7], np.float32)
    (found,) = compile(parse_text(text), "trn2", GraphOptions(auto_cast="all"))(x)
    third = rounded(np.array(0.3333), ml_dtypes.bfloat16)
    once = rounded(rounded(x, ml_dtypes.bfloat16) * third, ml_dtypes.bfloat16)
    np.testing.assert_array_equal(found, rounded(once * third, ml_dtypes.bfloat16))


def test_casts_leave_the_types_of_parameters_and_results() -> None:
    plain, cast = (
        assemble(parse_text(DOT), resolve("trn1"), GraphOptions(auto_cast=mode))
        for mode in ("none", "all")
    )
    for kernel in (plain, cast):
        assert [tensor.dtype for tensor in kernel.parameters] == ["float32"] * 3


def refused(options: GraphOptions, target: str, text: str = DOT) -> NeuronError:
    with pytest.raises(NeuronError) as caught:
        compile(parse_text(text), target, options)
    return caught.value


def test_two_physical_cores() -> None:
    assert "NCC_EARG001" in str(refused(GraphOptions(logical_cores=2), "trn1"))
    compiled = compile(parse_text(DOT), "trn2", GraphOptions(logical_cores=2))
    assert len(compiled.kernel.program.cores) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"auto_cast": "some"},
        {"auto_cast_type": "bf17"},
        {"logical_cores": 3},
        {"optimisation": 4},
        {"implicit_integer_downcast": frozenset({"sum"})},
    ],
)
def test_other_values_are_refused(wrong: dict) -> None:
    with pytest.raises(NeuronError) as caught:
        GraphOptions(**wrong)
    assert caught.value.code == "value-not-allowed"


@pytest.mark.parametrize(
    "options", [GraphOptions(optimisation=1), GraphOptions(model_type="transformer")]
)
def test_hints_leave_the_program_as_it_is(options: GraphOptions) -> None:
    from isa.files.container import write

    programs = [compile(parse_text(DOT), "trn2", o).kernel.program for o in (options, None)]
    assert write(programs[0]) == write(programs[1])


def test_counts_too_long_to_fold() -> None:
    text = """HloModule counted
    ENTRY e { i = s32[70000] iota(), iota_dimension=0
      x = s32[70000] parameter(0)
      ROOT r = s32[70000] add(i, x) }"""
    (found,) = compile(parse_text(text), "trn2")(np.full(70000, 3, np.int32))
    np.testing.assert_array_equal(found, np.arange(70000) + 3)


def test_plans_are_tried_from_o2_on() -> None:
    """A weight that takes 16 KiB of a partition stays for all rows or does not; what is faster by
    the timing model is taken."""
    module = parse_text(LAYER)
    first, *others = plans()
    programs = {
        right: print_kernel(assemble(module, resolve("trn2"), limits=PlanLimits(right=right)))
        for right in {limits.right for limits in (first, *others)}
    }
    assert len(set(programs.values())) == 2 < len(programs)
    assemble(module, resolve("trn2"), limits=first)  # which says what it asked for
    made = [limits.decisions(first.asked) for limits in others]
    assert any(one != first.decisions(first.asked) for one in made)
    times = [
        simulate(compile(module, "trn2", GraphOptions(optimisation=level)).kernel.program).total_ns
        for level in (1, 2)
    ]
    assert times[1] < times[0]


@pytest.mark.parametrize("type", ["f32", "bf16"])
@pytest.mark.parametrize("name", ["product", "convolution"])
def test_infinities_stay_in_their_rows_where_they_are_saturated(name: str, type: str) -> None:
    """The tensor engine of trn1 transposes by a product with an identity matrix."""
    text = {
        "product": f"""HloModule m
ENTRY e {{
 x = {type}[200,150] parameter(0)
 y = {type}[150,60] parameter(1)
 ROOT r = f32[200,60] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}""",
        "convolution": f"""HloModule m
ENTRY e {{
 x = {type}[2,9,9,40] parameter(0)
 y = {type}[1,1,40,24] parameter(1)
 ROOT r = {type}[2,9,9,24] convolution(x, y), window={{size=1x1}}, dim_labels=b01f_01io->b01f
}}""",
    }[name]
    module = parse_text(text)
    random = np.random.default_rng(2)
    x, y = (
        random.standard_normal(item.shape.dimensions).astype(item.shape.numpy_dtype())
        for item in module.parameters
    )
    x[1, 1], x[0, 3] = np.inf, -np.inf
    rows = np.isfinite(x.astype(np.float32)).all(-1)
    with np.errstate(invalid="ignore"):
        wanted = (x.astype(np.float64) @ y.astype(np.float64).reshape(y.shape[-2:]))[rows]
    tolerance = {"rtol": 1e-2, "atol": 1e-1} if type == "bf16" else {"rtol": 1e-5, "atol": 1e-5}
    plain, saturated = (
        compile(module, "trn1", GraphOptions(saturate_infinity=one))(x, y)[0] for one in (0, 1)
    )
    assert np.isnan(plain[rows].astype(np.float32)).any()
    np.testing.assert_allclose(saturated[rows].astype(np.float64), wanted, **tolerance)
    (later,) = compile(module, "trn2", GraphOptions(saturate_infinity=True))(x, y)
    np.testing.assert_allclose(later[rows].astype(np.float64), wanted, **tolerance)
    assert not np.isfinite(later.astype(np.float32)[~rows]).any()
