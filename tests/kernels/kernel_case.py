"""What a test of a public kernel states: inputs, the NumPy formula, and the tolerance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MODES = ("device", "reference", "eager")


@dataclass(frozen=True)
class Case:
    """A kernel of a checkout on inputs for it, and what it must compute.

    `inputs` makes the arguments from a random generator, `expected` the outputs from them, in
    float64; both get `named` too. Outputs may differ by `tolerance` of the larger of |expected|
    and its root mean square. `label` tells two cases of one kernel apart. `by_name` are the
    parameters of the inputs where they are not the first ones; `environment` are variables that
    the kernel's file reads. A kernel that returns nothing writes its last input. `needs` is the
    option of another checkout that its file imports.
    """

    path: str
    kernel: str
    inputs: Callable[[np.random.Generator], tuple[Any, ...]]
    expected: Callable[..., Any]
    tolerance: float
    target: str = "trn2"
    cores: int = 1
    label: str = ""
    named: Mapping[str, Any] = field(default_factory=dict)
    by_name: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    returns: bool = True
    needs: str = ""

    def __str__(self) -> str:
        return ":".join(part for part in (self.path, self.kernel, self.label) if part)


def normal(*shapes: tuple[int, ...], dtype: Any = np.float32, scale: float = 1.0) -> Any:
    """Inputs of these shapes from a normal distribution."""

    def make(random: np.random.Generator) -> tuple[Any, ...]:
        return tuple((scale * random.standard_normal(shape)).astype(dtype) for shape in shapes)

    return make


def assert_close(actual: Any, expected: Any, tolerance: float) -> None:
    """Every output has the shape of the expected one and differs by the tolerance at most."""
    actual = actual if isinstance(actual, tuple) else (actual,)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(actual) == len(expected)
    for i, (have, want) in enumerate(zip(actual, expected)):
        assert have.shape == want.shape, f"output {i}"
        have, want = have.astype(np.float64), np.asarray(want, np.float64)
        size = np.sqrt(np.mean(want**2))
        worst = np.max(np.abs(have - want) / np.maximum(np.maximum(np.abs(want), size), 1e-300))
        assert worst <= tolerance, f"output {i} differs by {worst:.3g}"
