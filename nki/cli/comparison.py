"""Comparison of a kernel's outputs with those of a NumPy function (`--expect`).

An output agrees when |output - expected| <= tolerance * max(|expected|, rms(expected)) in every
element: relative for large elements, and against the root mean square where cancellation made
them small. The tolerance is two units in the last place of the output's dtype, at least 2^-13,
because a kernel computes in fp32 and adds up in another order. Integers must be equal.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isa.dtypes import DTYPES, normalise

_SMALLEST = 2.0**-13
BOUND = "|output - expected| <= tolerance * max(|expected|, rms(expected))"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output against its reference. Errors are the largest of all elements; `problem` says
    why they could not be compared. `worst` is the index of the element furthest out."""

    agrees: bool
    tolerance: float
    absolute: float = 0.0
    relative: float = 0.0
    wrong: int = 0
    worst: tuple[int, ...] = ()
    problem: str = ""

    def data(self) -> dict[str, Any]:
        """The comparison as `--json` shows it."""
        return {
            "agrees": self.agrees,
            "tolerance": self.tolerance,
            "max_absolute_error": self.absolute,
            "max_relative_error": self.relative,
            "elements_outside": self.wrong,
            "worst_index": list(self.worst),
            "problem": self.problem or None,
        }


def tolerance_of(dtype: str) -> float:
    """The default relative tolerance for outputs of a dtype; 0 for integers."""
    row = DTYPES[dtype]
    return max(2.0 ** (1 - row.mantissa_bits), _SMALLEST) if row.is_float else 0.0


def expected_outputs(
    function: Callable[..., Any], tensors: Mapping[str, Any], values: Mapping[str, Any]
) -> Any:
    """Call the reference: by name where its parameters have the kernel's names, else by position.

    It gets the tensors, and of the compile-time values those that it has parameters for.
    """
    parameters = inspect.signature(function).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    known = {n: v for n, v in {**tensors, **values}.items() if takes_any or n in parameters}
    required = [
        name
        for name, p in parameters.items()
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    if set(tensors) <= set(known) and all(name in known for name in required):
        return function(**known)
    return function(*tensors.values(), **{n: v for n, v in values.items() if n in parameters})


def compare_all(
    outputs: Sequence[Any], expected: Sequence[Any], tolerance: float | None
) -> list[Comparison]:
    """Every output with its reference; a missing or surplus one does not agree."""
    found = [compare(o, e, tolerance) for o, e in zip(outputs, expected)]
    for number in range(len(found), max(len(outputs), len(expected))):
        side = "the reference" if number < len(outputs) else "the kernel"
        found.append(Comparison(False, 0.0, problem=f"{side} has no output {number}"))
    return found


def compare(output: Any, expected: Any, tolerance: float | None = None) -> Comparison:
    """One output with its reference; NaN and infinities must be at the same places."""
    expected = np.asarray(expected)
    bound = tolerance_of(normalise(output.dtype)) if tolerance is None else tolerance
    if output.shape != expected.shape:
        problem = f"shape {list(output.shape)}, expected {list(expected.shape)}"
        return Comparison(False, bound, problem=problem)
    ours, theirs = output.astype(np.float64), expected.astype(np.float64)
    if not ours.size:
        return Comparison(True, bound)
    regular = np.isfinite(ours) & np.isfinite(theirs)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(ours - theirs)
    equal = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    error[equal] = 0.0
    error[~equal & ~regular] = np.inf
    size = np.abs(theirs)
    finite = size[np.isfinite(theirs)]
    scale = float(np.sqrt(np.mean(finite * finite))) if finite.size else 0.0
    allowed = bound * np.maximum(np.where(np.isfinite(size), size, 0.0), scale)
    wrong = error > allowed
    # Relative to what the bound is relative to, so that the two numbers can be compared.
    reference = np.maximum(size, scale)
    relative = np.divide(
        error, reference, out=error.copy(), where=np.isfinite(error) & (reference > 0)
    )
    worst = np.unravel_index(int(np.argmax(relative)), relative.shape)
    return Comparison(
        agrees=not wrong.any(),
        tolerance=bound,
        absolute=float(error.max()),
        relative=float(relative.max()),
        wrong=int(wrong.sum()),
        worst=tuple(int(i) for i in worst),
    )
