"""Infinite pixels and NaN reach the results of their windows and no others, whichever plan computes
several windows or groups as one product: against sums of HLO's own terms."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from on_device import modelled_ns, program_ns

import graph_compiler
from graph_compiler.compiled import Compiled
from graph_compiler.options import GraphOptions
from graph_compiler.report import report_of

FLOAT = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}


class Convolution:
    """Of [batch, rows, columns, features] by a square window, padded to rows of as many results."""

    def __init__(
        self, type: str, image: Any, window: int, outputs: int, stride: int = 1, dilation: int = 1
    ) -> None:
        self.type, self.image, self.stride, self.dilation = type, image, stride, dilation
        self.kernel = (window, window, image[3], outputs)
        self.edge = dilation * (window - 1) // 2
        self.groups, self.planes = 1, False

    def in_groups(self, groups: int) -> Convolution:
        """The same, each output of the features of its group alone."""
        self.groups = groups
        window, _, features, outputs = self.kernel
        self.kernel = (window, window, features // groups, outputs)
        return self

    def of_planes(self) -> Convolution:
        """The same with features in front of rows."""
        self.planes = True
        return self

    def text(self, behind: str = "") -> str:
        """HLO: the convolution `c`, of which `behind` makes something."""
        n, rows, columns, features = self.image
        window, _, each, outputs = self.kernel
        ends = [(size + self.edge * 2 - self.span) // self.stride + 1 for size in (rows, columns)]
        shapes = [(n, rows, columns, features), self.kernel, (n, *ends, outputs)]
        if self.planes:
            shapes = [(n, features, rows, columns), (outputs, each, window, window)]
            shapes.append((n, outputs, *ends))
        x, k, r = (f"{self.type}[{','.join(map(str, shape))}]" for shape in shapes)
        labels = "bf01_oi01->bf01" if self.planes else "b01f_01io->b01f"
        root = "" if behind else "ROOT "
        lines = behind.replace("RESULT", r).replace("AXIS", "1" if self.planes else "3")
        lines = lines.replace("TYPE", self.type)
        return f"""HloModule m
ENTRY e {{
 x = {x} parameter(0)
 k = {k} parameter(1)
 {root}c = {r} convolution(x, k), window={{size={window}x{window} stride={self.stride}x{self.stride}
  pad={self.edge}_{self.edge}x{self.edge}_{self.edge}
  rhs_dilate={self.dilation}x{self.dilation}}}, dim_labels={labels},
  feature_group_count={self.groups}
{lines}}}"""

    @property
    def span(self) -> int:
        """Pixels from the first one of a window to its last."""
        return self.dilation * (self.kernel[0] - 1) + 1

    def inputs(self, special: bool) -> tuple[Any, Any]:
        """An image, with infinities and NaN where it is `special`, and a kernel."""
        rng = np.random.default_rng(sum(self.image))
        x = rng.standard_normal(self.image).astype(FLOAT[self.type])
        k = rng.standard_normal(self.kernel).astype(FLOAT[self.type])
        if special:
            _, rows, columns, _ = self.image
            x[0, rows // 2, columns // 2, 0] = np.inf
            x[-1, 3, 4, 1 % self.image[3]] = np.nan
            x[-1, 0, columns - 1, -1] = -np.inf
        return x, k

    def ordered(self, x: Any, k: Any) -> tuple[Any, Any]:
        """The inputs as memory has them."""
        return (x.transpose(0, 3, 1, 2), k.transpose(3, 2, 0, 1)) if self.planes else (x, k)

    def wanted(self, x: Any, k: Any) -> Any:
        """Sums of the terms that HLO has: padding is no pixel, but zero."""
        x, k = x.astype(np.float64), k.astype(np.float64)
        edge = self.edge
        x = np.pad(x, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
        high, wide = (size - self.span + 1 for size in x.shape[1:3])
        x = x.reshape(*x.shape[:3], self.groups, -1)
        k = k.reshape(*k.shape[:3], self.groups, -1)
        total: Any = 0.0
        for i, j in np.ndindex(k.shape[:2]):
            down, across = i * self.dilation, j * self.dilation
            seen = x[:, down : down + high : self.stride, across : across + wide : self.stride]
            total = total + np.einsum("nhwgf,fgo->nhwgo", seen, k[i, j])
        total = total.reshape(*total.shape[:3], -1)
        return total.transpose(0, 3, 1, 2) if self.planes else total


def run(
    case: Convolution, target: str, special: bool = True, behind: str = "", **options: Any
) -> tuple[Compiled, Any, Any]:
    """A compiled convolution, its result, and what HLO says."""
    module = graph_compiler.parse_text(case.text(behind))
    compiled = graph_compiler.compile(module, target, GraphOptions(**options))
    x, k = case.inputs(special)
    (found,) = compiled(*case.ordered(x, k))
    with np.errstate(invalid="ignore"):
        return compiled, np.asarray(found, np.float64), case.wanted(x, k)


def assert_agrees(found: Any, wanted: Any, type: str) -> None:
    """The same infinities and NaN at the same places, and finite results within their rounding."""
    scale = np.abs(wanted[np.isfinite(wanted)]).max()
    error = 1e-6 if type == "f32" else 2**-8
    np.testing.assert_allclose(found, wanted, rtol=2 * error, atol=error * scale)


COLUMNS = Convolution("f32", (2, 20, 20, 27), 3, 24)
STRIPS = Convolution("bf16", (2, 32, 32, 3), 7, 32, 2)
CASES = {
    "columns together": COLUMNS,
    "columns together, 16 bits": Convolution("bf16", (2, 14, 14, 64), 3, 24),
    "columns together, planes": Convolution("bf16", (2, 15, 15, 64), 3, 12).of_planes(),
    "rows of pixels": STRIPS,
    "rows of pixels, planes": Convolution("f32", (1, 30, 30, 3), 5, 16).of_planes(),
    "rows of pixels apart": Convolution("f32", (2, 24, 24, 4), 3, 16, 1, 2),
    "groups": Convolution("bf16", (2, 12, 12, 32), 3, 48).in_groups(8),
    "groups, planes": Convolution("f32", (2, 9, 9, 24), 3, 24, 2).in_groups(6).of_planes(),
    "groups of one": Convolution("bf16", (2, 30, 30, 128), 3, 128).in_groups(128),
    "several bands": Convolution("bf16", (40, 7, 7, 16), 3, 16),
}


@pytest.mark.parametrize("name", CASES)
def test_infinite_pixels_stay_in_their_windows(name: str) -> None:
    compiled, found, wanted = run(CASES[name], "trn2")
    assert not np.isfinite(wanted).all() and np.isfinite(wanted).any()
    assert_agrees(found, wanted, CASES[name].type)
    assert compiled.notes.recomputed == 1


@pytest.mark.parametrize("case", [COLUMNS, STRIPS, CASES["groups"]])
def test_infinite_pixels_on_two_cores(case: Convolution) -> None:
    _, found, wanted = run(case, "trn3", logical_cores=2)
    assert_agrees(found, wanted, case.type)


BIAS = """ b = TYPE[] constant(0.5)
 bs = RESULT broadcast(b), dimensions={}
 s = RESULT add(c, bs)
 o = RESULT broadcast(z), dimensions={AXIS}
 ROOT r = RESULT multiply(s, o)
"""


@pytest.mark.parametrize("case", [COLUMNS, STRIPS, CASES["groups"]])
def test_work_behind_the_convolution_is_done_again_too(case: Convolution) -> None:
    outputs = case.kernel[3]
    behind = f" z = {case.type}[{outputs}] parameter(2)\n{BIAS}"
    module = graph_compiler.parse_text(case.text(behind))
    x, k = case.inputs(True)
    z = np.linspace(0.5, 2, outputs).astype(FLOAT[case.type])
    (found,) = graph_compiler.compile(module, "trn2")(x, k, z)
    with np.errstate(invalid="ignore"):
        wanted = (case.wanted(x, k) + 0.5) * z.astype(np.float64)
    assert_agrees(np.asarray(found, np.float64), wanted, case.type)


@pytest.mark.parametrize("case", [COLUMNS, STRIPS, CASES["groups"]])
def test_finite_pixels_take_no_further_time(case: Convolution) -> None:
    compiled, found, wanted = run(case, "trn2", special=False)
    assert_agrees(found, wanted, case.type)
    _, finite = compiled.profile(*case.ordered(*case.inputs(False)))
    _, again = compiled.profile(*case.ordered(*case.inputs(True)))
    assert again.total_ns > 1.2 * finite.total_ns
    # What the report states, without data.
    assert modelled_ns(compiled) == finite.total_ns
    assert report_of(compiled)["total_ns"] == finite.total_ns


def test_nobody_looks_where_no_pixel_is_multiplied_by_zeros() -> None:
    compiled, found, wanted = run(Convolution("bf16", (1, 10, 10, 128), 3, 200), "trn2")
    assert_agrees(found, wanted, "bf16")
    assert not compiled.notes.recomputed
    assert program_ns(compiled.kernel.program) > 0
