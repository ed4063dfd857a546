"""Numbers of operations against those of XLA's own cost analysis, and by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conformance_models import MODELS

from graph_compiler import load, parse_text
from graph_compiler.hlo.cost import work_of
from graph_compiler.hlo.operators.row import Work

ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"


@pytest.mark.skipif(not MODELS.exists(), reason=f"no model files in {MODELS}")
@pytest.mark.parametrize(
    "path", sorted(MODELS.glob("*.hlo.pb")), ids=lambda path: path.name.partition(".")[0]
)
def test_models_have_the_work_that_xla_counts(path: Path) -> None:
    """XLA counts in float32, and folds of several ranks as those of two."""
    jax = pytest.importorskip("jax", reason="jax is not installed (pip install 'opennki[jax]')")
    from jaxlib import _hlo, _jax

    module = _hlo.HloModule.from_serialized_hlo_module_proto(path.read_bytes())
    counted = _jax.hlo_module_cost_analysis(jax.devices("cpu")[0].client, module)
    work = work_of(load(path, check=False))
    assert work.flops == pytest.approx(counted["flops"], rel=5e-4)
    assert work.transcendentals == counted.get("transcendentals", 0)


@pytest.mark.parametrize(
    ("line", "work"),
    [
        ("f32[4,6] add(x, x)", Work(24)),
        ("f32[4,6] tanh(x)", Work(0, 24)),
        ("f32[6,4] transpose(x), dimensions={1,0}", Work()),
        ("f32[4] reduce(x, zero), dimensions={1}, to_apply=add", Work(4 * 5)),
        (
            "f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
            Work(2 * 4 * 4 * 6),
        ),
        (
            "f32[4,4] reduce-window(x, zero), window={size=1x3}, to_apply=add",
            Work(4 * 4 * 2),
        ),
        ("f32[4,6] call(x), to_apply=twice", Work(24)),
        (
            "f32[4,6] all-reduce(x), replica_groups={{0,1,2}}, to_apply=add",
            Work(24 * 2),
        ),
        ("(f32[4,6]) while(t), condition=never, body=doubled", Work(24)),
        ("f32[4,6] sort(x), dimensions={1}, to_apply=less", Work(24 * 3)),
        # Three positions of a kernel of two on three elements and one of padding: five products.
        (
            "f32[1,1,3] convolution(image, kernel), "
            "window={size=2 pad=1_0}, dim_labels=bf0_oi0->bf0",
            Work(2 * 5),
        ),
    ],
)
def test_work_of_one_instruction(line: str, work: Work) -> None:
    text = f"""HloModule m
{ADD}less {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}}
twice {{
  p = f32[4,6] parameter(0)
  ROOT r = f32[4,6] add(p, p)
}}
doubled {{
  p = (f32[4,6]) parameter(0)
  a = f32[4,6] get-tuple-element(p), index=0
  r = f32[4,6] add(a, a)
  ROOT t = (f32[4,6]) tuple(r)
}}
never {{
  p = (f32[4,6]) parameter(0)
  ROOT c = pred[] constant(false)
}}
ENTRY e {{
  x = f32[4,6] parameter(0)
  image = f32[1,1,3] parameter(1)
  kernel = f32[1,1,2] parameter(2)
  zero = f32[] constant(0)
  t = (f32[4,6]) tuple(x)
  ROOT r = {line}
}}
"""
    assert work_of(load(text.encode())) == work


def test_work_of_calls_that_double_at_every_level_is_found_at_once() -> None:
    """Sixty levels: each computation's work is found once, though it runs 2 ** 60 times."""
    lines = ["HloModule m", "c0 {", "  p = f32[] parameter(0)", "  ROOT r = f32[] negate(p)", "}"]
    for level in range(1, 60):
        lines += [
            f"c{level} {{",
            "  p = f32[] parameter(0)",
            f"  a = f32[] call(p), to_apply=c{level - 1}",
            f"  ROOT r = f32[] call(a), to_apply=c{level - 1}",
            "}",
        ]
    lines += [
        "ENTRY e {",
        "  p = f32[] parameter(0)",
        "  ROOT r = f32[] call(p), to_apply=c59",
        "}",
    ]
    assert work_of(parse_text("\n".join(lines))) == Work(1 << 59)


def test_huge_kernels_are_counted_without_looking_at_every_element() -> None:
    size = 1 << 30
    text = f"""HloModule m
ENTRY e {{
  x = f32[1,1,{2 * size}] parameter(0)
  k = f32[1,1,{size}] parameter(1)
  ROOT r = f32[1,1,{size + 1}] convolution(x, k), window={{size={size}}}, dim_labels=bf0_oi0->bf0
}}
"""
    assert work_of(load(text.encode())).flops == 2 * size * (size + 1)


def test_work_adds_up() -> None:
    assert np.sum([Work(1, 2), Work(3, 4)], axis=0).tolist() == list(Work(1, 2) + Work(3, 4))
