"""Index expressions: what `t[key]` selects in each dimension, with its bounds checked.

Slices clamp to the tensor as in Python; `nl.ds`, integers and the named views do not. Indices may
be ints, forms over launch symbols and loop variables, and registers. What depends on a register
whose range is unknown is checked when the kernel runs.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from isa.affine import (
    Affine,
    Polynomial,
    affine,
    bounds,
    ceil_division,
    in_words,
    minimum,
    prove,
    variable_ranges,
)
from isa.errors import NeuronError
from nki.ir.context import CURRENT
from nki.ir.nodes import Access, Register


class DynamicSlice:
    """`nl.ds(start, size)`: `size` elements from `start`, an int, a loop variable or a register.

    Source: SDK nki/api/nki/language/__init__.py (ds).

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def middle(a):
    ...     out = nl.ndarray((1, 2), dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.load(a)[:, nl.ds(1, 2)])
    ...     return out
    >>> print(middle(np.array([[1, 2, 3, 4]], np.float32)))
    [[2. 3.]]
    """

    __slots__ = ("size", "start")

    def __init__(self, start: Any, size: Any) -> None:
        self.start = start
        self.size = size

    def __repr__(self) -> str:
        return f"ds({self.start}, {self.size})"

    @property
    def empty(self) -> bool:
        """Whether it selects nothing. A size over launch symbols is not asked: the loop that it is
        in has no iteration where it would be 0."""
        return self.size.__class__ is int and bool(self.size == 0)


ds = DynamicSlice


def index_form(value: Any, what: str) -> Any:
    """`value` as an index form: int, Polynomial or Affine."""
    if type(value) is int or isinstance(value, (Polynomial, Affine)):
        return value
    if isinstance(value, Register):
        return affine(value)
    try:
        return operator.index(value)
    except TypeError:
        raise _no_integer(value, what) from None


def _no_integer(value: Any, what: str) -> NeuronError:
    text, hint = _instead_of(value)
    return NeuronError(
        "value-not-allowed",
        what=f"{what} is {text}, which is no integer",
        why="Sizes, indices and bounds are integers; indices and bounds may be loop variables and "
        "registers, and an index a slice, nl.ds(start, size) or `...`.",
        hint=hint,
    )


def _instead_of(value: Any) -> tuple[str, str]:
    """What stands where an integer should, in words, and what to write instead."""
    if isinstance(value, Access):
        return (
            f"tensor {value.storage.name!r}",
            "Load its element into a register with nisa.register_load; as an index a tensor "
            "also goes to NkiTensor.select and to ap(scalar_offset=...).",
        )
    if isinstance(value, (np.ndarray, list)):
        kind = "a list" if isinstance(value, list) else f"an array of shape {value.shape}"
        return (
            kind,
            "Arrays of indices are first-generation NKI. Write slices instead, a[0:4, 0:3] or "
            "a[nl.ds(start, 4), 0:3]; NkiTensor.ap([[stride, count], ...]) for other patterns, and "
            "its vector_offset for rows that a tensor of indices picks.",
        )
    if isinstance(value, bool):
        return repr(value), "Write int(condition) for 0 or 1; a mask goes to nl.where."
    if value is None:
        return "None", "NkiTensor.expand_dim(position) gives a view with one more dimension."
    return repr(value), "Convert it to an integer, with // where it is a quotient."


def at_least(form: Any, limit: Any) -> bool | None:
    """Whether form >= limit for all sizes and iterations: proven, refuted (for all), or open."""
    return prove(form - limit, ">=")


def has_range(form: Any) -> bool:
    """Whether the values of a form are limited by what is known while tracing."""
    low, high = bounds(form)
    return low is not None and high is not None


def require(form: Any, message: str, *values: Any) -> None:
    """form >= 0, or out-of-bounds; a condition on launch symbols alone may become a guard.
    `values` are those that `message` has placeholders for.

    Forms over registers of unknown range pass: the running kernel checks them.
    """
    verdict = prove(form, ">=")
    if verdict is None:
        if isinstance(form, Polynomial):
            verdict = bool(form >= 0)
        else:
            verdict = not has_range(form)
    if not verdict:
        what = message.format(*map(in_words, values)) if values else message
        ranges = variable_ranges(form)
        raise NeuronError("out-of-bounds", what=f"{what}; {ranges}" if ranges else what)


def element(index: Any, size: Any, dimension: int) -> Any:
    """The position of one element, negative ones counted from the end."""
    what = f"the index of dimension {dimension}"
    if index.__class__ is bool:
        raise _no_integer(index, what)
    position = index_form(index, what)
    if at_least(position, 0) is False:
        position = position + size
    message = "index {} is outside dimension {} of size {}"
    require(position, message, index, dimension, size)
    require(size - 1 - position, message, index, dimension, size)
    return position


def window(start: Any, count: Any, size: Any, dimension: int) -> tuple[Any, Any]:
    """Start and size of `nl.ds(start, count)`."""
    begin = index_form(start, f"the start of dimension {dimension}")
    length = index_form(count, f"the size of the slice of dimension {dimension}")
    if isinstance(length, Affine) or at_least(length, 1) is False:
        raise NeuronError(
            "out-of-bounds",
            what=f"nl.ds({in_words(start)}, {in_words(count)}) of dimension {dimension}: the size "
            "must be at least 1 and the same in every iteration",
        )
    message = "nl.ds({}, {}) reaches outside dimension {} of size {}: elements {} to {}"
    values = start, count, dimension, size, begin, begin + length - 1
    require(begin, message, *values)
    require(size - begin - length, message, *values)
    return begin, length


def whole(part: range, size: Any, dimension: int) -> slice:
    """The elements that a range names: `nl.affine_range(n)` in the place of an index."""
    message = f"{part} names elements outside dimension {dimension} of size {size}, or none"
    require(min(part, default=-1), message)
    require(size - 1 - max(part), message)
    return slice(part.start, part.stop, part.step)


def span(part: slice, size: Any, dimension: int) -> tuple[Any, Any, int]:
    """Start, size and step of a Python slice."""
    step = 1 if part.step is None else index_form(part.step, "the step of a slice")
    if type(step) is not int or step < 1:
        raise NeuronError(
            "view-not-allowed",
            what=f"the slice of dimension {dimension} has step {step}",
            why="Slices go forward with a step that is known while tracing.",
            hint="Use a positive integer step; NkiTensor.ap expresses other patterns.",
        )
    begin = 0 if part.start is None else _clamp(part.start, size, dimension)
    end = size if part.stop is None else _clamp(part.stop, size, dimension)
    length = end - begin
    if isinstance(length, Affine):
        raise NeuronError(
            "view-not-allowed",
            what=f"the slice {in_words(begin)}:{in_words(end)} of dimension {dimension} has "
            f"{in_words(length)} elements, a "
            "number that changes from one iteration to the next",
            why="The shape of a view is the same in every iteration of a rolled loop.",
            hint="Use a size that does not depend on the loop variable: nl.ds(start, size).",
        )
    if at_least(length, 1) is False:
        first = "" if part.start is None else in_words(part.start)
        last = "" if part.stop is None else in_words(part.stop)
        raise NeuronError(
            "out-of-bounds",
            what=f"slice {first}:{last} of dimension {dimension}, whose size is {size}, has no "
            "elements",
        )
    return begin, length if step == 1 else ceil_division(length, step), step


def _clamp(value: Any, size: Any, dimension: int) -> Any:
    """A slice bound as Python takes it: from the end when negative, and not past either end."""
    form = index_form(value, f"a slice bound of dimension {dimension}")
    if at_least(form, 0) is False:
        form = form + size
        if at_least(form, 0) is False:
            return 0
    excess = form - size
    verdict = prove(excess, "<=")
    if verdict is True:
        return form
    if verdict is False:
        context = CURRENT.get()
        if context is not None:
            context.slice_was_cut(form, size, dimension)
        return size
    if not isinstance(excess, Affine):
        return minimum(form, size)
    if has_range(excess):
        high = bounds(excess)[1]
        raise NeuronError(
            "out-of-bounds",
            what=f"slice bound {in_words(form)} of dimension {dimension} lies inside the size "
            f"{size} in some iterations and {high} past it in others",
            why="A rolled loop has one body: its views have one shape.",
            hint="Let the loop run over whole tiles, nl.affine_range(size // tile), or over "
            "nl.affine_range((size + tile - 1) // tile), whose last iteration is a body of its "
            "own.",
        )
    return form
