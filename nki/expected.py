"""Comparison of a kernel's outputs with those of a NumPy function (`--expect`).

An output agrees when |output - expected| <= tolerance * max(|expected|, rms(expected)) in every
element: relative for large elements, and against the root mean square where cancellation made
them small. The tolerance is two units in the last place of the output's dtype, at least 2^-13,
because a kernel computes in fp32 and adds up in another order. Integers must be equal.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isa.dtypes import DTYPES, normalise

_SMALLEST = 2.0**-13
_CHUNK = 1 << 20  # elements that are compared at once, to bound the memory that it takes
BOUND = "|output - expected| <= tolerance * max(|expected|, rms(expected))"


@dataclass(frozen=True, slots=True)
class OutputComparison:
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


def as_tuple(returned: Any) -> tuple[Any, ...]:
    """What a kernel or NumPy function returned as a tuple of arrays."""
    if returned is None:
        return ()
    return tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)


def compare_all(
    outputs: Sequence[Any], expected: Sequence[Any], tolerance: float | None
) -> list[OutputComparison]:
    """Every output with its reference; a missing or surplus one does not agree."""
    found = [compare(o, e, tolerance) for o, e in zip(outputs, expected)]
    for number in range(len(found), max(len(outputs), len(expected))):
        side = "the reference" if number < len(outputs) else "the kernel"
        found.append(OutputComparison(False, 0.0, problem=f"{side} has no output {number}"))
    return found


def compare(output: Any, expected: Any, tolerance: float | None = None) -> OutputComparison:
    """One output with its reference; NaN and infinities must be at the same places."""
    expected = np.asarray(expected)
    bound = tolerance_of(normalise(output.dtype)) if tolerance is None else tolerance
    if output.shape != expected.shape:
        problem = f"shape {list(output.shape)}, expected {list(expected.shape)}"
        return OutputComparison(False, bound, problem=problem)
    scale = _root_mean_square(expected)
    found = OutputComparison(True, bound)
    for start in range(0, output.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        found = _with_part(
            found, output.reshape(-1)[part], expected.reshape(-1)[part], scale, start
        )
    worst = np.unravel_index(found.worst[0], output.shape) if found.worst else ()
    return replace(found, worst=tuple(int(i) for i in worst))


def _root_mean_square(array: Any) -> float:
    """Of the finite elements; 0 without any."""
    total, count = 0.0, 0
    flat = array.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK].astype(np.float64)
        part = part[np.isfinite(part)]
        total += float(np.dot(part, part))
        count += part.size
    return float(np.sqrt(total / count)) if count else 0.0


def _with_part(
    found: OutputComparison, output: Any, expected: Any, scale: float, start: int
) -> OutputComparison:
    """The comparison so far, with the flat elements from `start` on taken into account."""
    ours, theirs = output.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(ours - theirs)
    equal = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    error[equal] = 0.0
    error[~equal & ~(np.isfinite(ours) & np.isfinite(theirs))] = np.inf
    size = np.abs(theirs)
    size[~np.isfinite(size)] = 0.0
    reference = np.maximum(size, scale)
    wrong = error > found.tolerance * reference
    # Relative to what the bound is relative to, so that the two numbers can be compared.
    divisible = np.isfinite(error) & (reference > 0)
    relative = np.divide(error, reference, out=error.copy(), where=divisible)
    worst = int(np.argmax(relative))
    is_worse = not found.worst or float(relative[worst]) > found.relative
    return replace(
        found,
        agrees=found.agrees and not wrong.any(),
        absolute=max(found.absolute, float(error.max())),
        relative=max(found.relative, float(relative[worst])),
        wrong=found.wrong + int(wrong.sum()),
        worst=(start + worst,) if is_worse else found.worst,
    )
