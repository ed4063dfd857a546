"""Footprints of accesses: boxes of elements that can be compared over loop iterations.

A `Box` has one (start, extent) pair a dimension of its tensor: rows and byte columns on chip; in
HBM the tensor's own dimensions, the last one in bytes. A view in HBM that is no box of these, as it
runs over the end of a dimension, is known by the bytes between its first and its last. Starts are
index forms; a dimension that depends on a run-time value counts as whole.

Two boxes that meet are compared element by element where it is known how far apart they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from isa.access import AccessPattern, overlaps
from isa.affine import Affine, Polynomial, bounds
from isa.affine.polynomial import collect, exact_quotient
from isa.dtypes import DTYPES
from isa.enums import Memory
from nki.ir.nodes import Access, Loop, Register, Tensor

Span = tuple[Any, Any] | None
"""(start, extent), or None for all of the dimension."""

_INT = {int}

_UNASKED: tuple[Any, ...] = (None,)
"""No motion: that of a box has not been asked for, or of a span is not known."""


class Box:
    """Spans by dimension, none where they say nothing. In HBM `hull` are the bytes of the tensor
    from the first to the last. `access` is the view itself when it is of a known form, on chip at a
    known place: two boxes that overlap are then told apart exactly where one of them (not `dense`)
    skips elements."""

    __slots__ = ("_motion", "_rest", "access", "dense", "hull", "spans", "static")

    def __init__(
        self,
        spans: tuple[Span, ...],
        access: Access | None = None,
        dense: bool = True,
        hull: Span = None,
    ) -> None:
        self.spans = spans
        self.access = access
        self.dense = dense
        self.hull = hull
        ends = chain.from_iterable(filter(None, (*spans, hull)))
        self.static = _INT.issuperset(map(type, ends))
        self._motion: tuple[Any, ...] | None = () if self.static else _UNASKED
        self._rest: Box | None = None

    def covers(self, tensor: Tensor) -> bool:
        """Whether the box is all of an on-chip tensor."""
        if not (self.static and self.dense and len(self.spans) == 2):
            return False
        return self.spans == ((0, tensor.shape[0]), (0, tensor.row_bytes))

    @property
    def motion(self) -> tuple[Any, ...] | None:
        """How registers move it: boxes for which that is equal stay as far apart as they are. None
        where it depends on launch symbols how far that is, or how large the box is."""
        if self._motion is _UNASKED:
            motions = [_motion(span) for span in (*self.spans, self.hull)]
            self._motion = None if _UNASKED in motions else tuple(motions)
        return self._motion

    def at_rest(self) -> Box:
        """The box where the registers that move it are 0."""
        if self.static:
            return self
        if self._rest is None:
            spans = tuple(map(_at_rest, self.spans))
            self._rest = Box(spans, self.access, self.dense, _at_rest(self.hull))
        return self._rest

    def widened(self, node: Any) -> Box:
        """The box over all iterations of a loop (or of a `while`, whose registers change)."""
        variable = node.variable if isinstance(node, Loop) else None
        if self.static:
            return self
        spans = tuple([_widen(span, variable, node) for span in self.spans])
        return Box(spans, hull=_widen(self.hull, variable, node))

    def moves(self, register: Register) -> bool:
        """Whether a register moves it."""
        return any(_coefficient(span, register) is not None for span in (*self.spans, self.hull))

    def later(self, register: Register, distance: int) -> Box:
        """The box where a register is larger; itself where that does not move it."""
        if self.static or not self.moves(register):
            return self
        spans = tuple([_later(span, register, distance) for span in self.spans])
        found = Box(spans, self.access, self.dense, _later(self.hull, register, distance))
        found._motion = self.motion
        return found


WHOLE = Box(())


def united(boxes: Sequence[Box]) -> Box | None:
    """The box that is just the elements of some, if there is one: they skip none, registers move
    them alike, and in the one dimension in which they differ no gap is left.

    >>> united([Box(((0, 4), (0, 8))), Box(((2, 4), (0, 8)))]).spans
    ((0, 6), (0, 8))
    """
    first, motion = boxes[0], boxes[0].motion
    if motion is None or not first.spans:
        return None
    for box in boxes:
        if box.access is not None or box.motion != motion or len(box.spans) != len(first.spans):
            return None
    still = [box.at_rest() for box in boxes]
    differ = [at for at, found in enumerate(zip(*[b.spans for b in still])) if len({*found}) > 1]
    if len(differ) != 1:
        return None
    span = _joint([b.spans[differ[0]] for b in still], [b.spans[differ[0]] for b in boxes])
    if span is None:
        return None
    hull = _joint([b.hull for b in still], [b.hull for b in boxes], gaps=True)
    return Box((*first.spans[: differ[0]], span, *first.spans[differ[0] + 1 :]), hull=hull)


def _joint(still: list[Span], spans: list[Span], gaps: bool = False) -> Span:
    """The span from the first of some to the end of the last; None where there are gaps. `still`
    is where they are at rest."""
    known = sorted((one[0], one[1], at) for at, one in enumerate(still) if one is not None)
    if len(known) < len(still):
        return None
    low, end = known[0][0], known[0][0]
    for start, extent, _ in known:
        if start > end and not gaps:
            return None
        end = max(end, start + extent)
    lowest = spans[known[0][2]]
    assert lowest is not None
    return lowest[0], end - low


def _motion(span: Span) -> tuple[Any, ...] | None:
    """How registers move a span (`Box.motion`); `_UNASKED` where that is not known."""
    if span is None:
        return None
    start, extent = span
    if type(start) is int:
        return () if type(extent) is int else _UNASKED
    if not isinstance(start, Affine):
        return _UNASKED
    known = type(start.constant) is type(extent) is int
    if not known or not _INT.issuperset([type(by) for _, by in start.terms]):
        return _UNASKED
    return tuple([(register.number, by) for register, by in start.terms])


def _coefficient(span: Span, register: Register) -> Any:
    """By how much a register moves a span; None where it does not."""
    if span is not None and isinstance(span[0], Affine):
        for one, by in span[0].terms:
            if one is register:
                return by
    return None


def _at_rest(span: Span) -> Span:
    return (span[0].constant, span[1]) if span and isinstance(span[0], Affine) else span


def _later(span: Span, register: Register, distance: int) -> Span:
    coefficient = _coefficient(span, register)
    if span is None or coefficient is None:
        return span
    return span[0] + coefficient * distance, span[1]


def _widen(span: Span, variable: Register | None, node: Any) -> Span:
    coefficient = None if variable is None else _coefficient(span, variable)
    if span is None or coefficient is None:
        return span
    start, extent = span
    if isinstance(node.lower, Register) or isinstance(node.upper, Register):
        return None
    low, high = bounds(coefficient)
    # The last value is upper - step where the steps come out even, else at most upper - 1.
    distance = node.upper - node.lower
    final = node.step if exact_quotient(distance, node.step) is not None else 1
    length = (distance - final) * coefficient
    others = tuple([term for term in start.terms if term[0] is not variable])
    rest = Affine(start.constant, others) if others else start.constant
    if low is not None and low >= 0:
        return rest + node.lower * coefficient, extent + length
    if high is not None and high <= 0:
        return rest + (node.upper - final) * coefficient, extent - length
    return None


def box_of(access: Access, variables: frozenset[Register]) -> Box:
    """The box of an access; `variables` are the enclosing loops' variables, whose terms stay."""
    tensor = access.storage
    if tensor.memory is Memory.sbuf or tensor.memory is Memory.psum:
        return _on_chip(access, tensor, variables)
    return _in_hbm(access, tensor, variables)


def _ascending(access: Access) -> tuple[Any, tuple[Any, ...]]:
    """Offset and strides of the same elements, each dimension walked from its lowest one."""
    offset, strides = access.offset, access.strides
    if not any(type(stride) is int and stride < 0 for stride in strides):
        return offset, strides
    forward = []
    for stride, count in zip(strides, access.shape):
        if type(stride) is int and stride < 0:
            offset = offset + (count - 1) * stride
            stride = -stride
        forward.append(stride)
    return offset, tuple(forward)


def _known(form: Any, variables: frozenset[Register]) -> bool:
    return not isinstance(form, Affine) or all(r in variables for r, _ in form.terms)


def _on_chip(access: Access, tensor: Tensor, variables: frozenset[Register]) -> Box:
    size = DTYPES[access.dtype].size
    pitch = tensor.row_bytes // size
    offset, strides = _ascending(access)
    shape = access.shape
    picked = access.vector_offset is not None
    if picked:  # any of the columns that indices choose from
        shape = (shape[0], access.vector_bound, *shape[2:])
        strides = (strides[0], access.vector_stride, *strides[2:])
    constant = offset if type(offset) is int else offset.constant
    row, _ = divmod(constant, pitch)
    start = offset - row * pitch
    extent: Any = 1
    dense = not picked
    for stride, count in zip(strides[:0:-1], shape[:0:-1]):
        if stride != extent and count != 1:
            dense = False
        extent = extent + (count - 1) * stride if stride else extent
    rows = (row, access.shape[0])
    if not _known(start, variables):
        return Box((rows, None))
    span = (start * size, extent * size)
    if type(start) is not int or type(extent) is not int or type(rows[1]) is not int:
        return Box((rows, span))
    if picked:
        return Box((rows, span), None, False)
    return Box((rows, span), access, dense)


def _in_hbm(access: Access, tensor: Tensor, variables: frozenset[Register]) -> Box:
    """The box by dividing offset and strides by the tensor's row-major strides, all in bytes; the
    hull alone where that does not come out."""
    size = DTYPES[access.dtype].size
    offset, steps = _ascending(access)
    # A register that is known at run time only may reach over the end of its dimension. The proof
    # of the program takes such an access for the whole tensor.
    if not _known(offset, variables):
        return WHOLE
    start = offset * size
    dims = [(size, stride * size, count) for stride, count in zip(steps, access.shape)]
    if access.vector_offset is not None:  # any of the rows that indices choose from
        dims[0] = size, access.vector_stride * size, access.vector_bound
    walks = [(step, n) for _, step, n in dims if not (_is(step, 0) or _is(n, 1))]
    if any(_is(count, 0) for count in (*tensor.shape, *(n for _, n in walks))):
        return WHOLE
    length: Any = size
    for step, count in walks:
        length = length + (count - 1) * step
    forms = (*access.shape, *access.strides)
    plain = access.vector_offset is None and all(type(form) is int for form in forms)
    spans = _spans(start, walks, tensor, size)
    dense = plain and math.prod(span[1] for span in spans) == size * math.prod(n for _, n in walks)
    return Box(spans, access if plain else None, bool(spans) and dense, (start, length))


def _is(form: Any, number: int) -> bool:
    return type(form) is int and form == number


def _spans(
    start: Any, walks: list[tuple[Any, Any]], tensor: Tensor, size: int
) -> tuple[tuple[Any, Any], ...]:
    """The spans, in the dimensions of a tensor, of elements of `size` bytes that begin at byte
    `start` and go on by (bytes, count); none where they are no box."""
    counts = [*tensor.shape[:-1], tensor.shape[-1] * DTYPES[tensor.dtype].size]
    strides: list[Any] = []
    product: Any = 1
    for count in reversed(counts):
        strides.insert(0, product)
        product = product * count
    extents: list[Any] = [1] * len(counts)
    extents[-1] = size
    for step, count in walks:
        for index, unit in enumerate(strides):
            factor = exact_quotient(step, unit)
            if factor is not None:
                extents[index] = extents[index] + (count - 1) * factor
                break
    spans = tuple(zip(_coordinates(start, strides), extents))
    # A pattern that runs over the end of a dimension continues in the next row.
    fits = all(_fits(span, count) for span, count in zip(spans[1:], counts[1:]))
    return spans if fits else ()


def _fits(span: tuple[Any, Any], count: Any) -> bool:
    if type(span[0]) is int and type(span[1]) is int and type(count) is int:
        return span[0] >= 0 and span[0] + span[1] <= count
    low, _ = bounds(span[0])
    slack, _ = bounds(count - span[0] - span[1])
    return low is not None and low >= 0 and slack is not None and slack >= 0


def _coordinates(offset: Any, strides: list[Any]) -> list[Any]:
    """Split a flat offset into one index form a dimension."""
    result: list[Any] = [0] * len(strides)
    constant, terms = (
        (offset.constant, offset.terms) if isinstance(offset, Affine) else (offset, ())
    )
    for index, unit in enumerate(strides):
        if type(constant) is int and type(unit) is int:
            quotient, constant = divmod(constant, unit)
        else:
            quotient, constant = _split(constant, unit)
        result[index] = result[index] + quotient
    result[-1] = result[-1] + constant
    for register, coefficient in terms:
        for index, unit in enumerate(strides):
            part = exact_quotient(coefficient, unit)
            if part is not None:
                result[index] = result[index] + Affine(0, ((register, part),))
                break
    return result


def _split(form: Any, unit: Any) -> tuple[Any, Any]:
    """(q, r) with form = q * unit + r, taking the monomials that `unit` divides."""
    if not isinstance(form, Polynomial):
        return 0, form
    quotient: Any = 0
    rest: Any = 0
    for monomial, coefficient in form.terms:
        part = collect({monomial: coefficient})
        factor = exact_quotient(part, unit)
        if factor is None:
            rest = rest + part
        else:
            quotient = quotient + factor
    return quotient, rest


def first_meeting(one: Box, other: Box, node: Any) -> int | None:
    """The least number of iterations of a loop, two or more, after which another box may meet what
    one was before. None where they meet in the next iteration, or never. Boxes that skip elements
    may meet at once, not in the next iteration, and again behind it."""
    low, high = 1, most_distant(node)
    for left, right in _compared(one, other):
        if left is None or right is None:
            continue
        start0, extent0 = left
        start1, extent1 = right
        terms = dict(start0.terms) if isinstance(start0, Affine) else {}
        step = terms.get(node.variable, 0) * node.step
        apart = start1 - start0
        if not all(type(number) is int for number in (step, apart, extent0, extent1)):
            return None if _meet_next(one, other, node) else _tried(one, other, node)
        if step < 0:
            step, apart = -step, -apart - extent1 + extent0
        if step == 0:
            if not -extent1 < apart < extent0:
                return None
            continue
        # apart + d * step lies between -extent1 and extent0
        low = max(low, (-extent1 - apart) // step + 1)
        high = min(high, -((apart - extent0) // step) - 1)
    if low > high:
        return None
    if _is_solid(one, other):  # the spans say all
        return low if low > 1 else None
    if _meet_next(one, other, node):
        return None
    low = max(low, 2)
    for distance in range(low, min(high, low + _TRIED) + 1):
        if may_overlap(one.later(node.variable, -distance * node.step), other):
            return distance
    return low + _TRIED + 1 if high > low + _TRIED else None


def most_distant(node: Any) -> int:
    """How many iterations of a loop are apart at most."""
    if type(node.upper) is int and type(node.lower) is int:
        return max(-((node.lower - node.upper) // node.step) - 1, 0)
    return _UNKNOWN


_UNKNOWN = 1 << 40
"""More iterations than a loop has, where their number is known only later."""

_TRIED = 8
"""Iterations that are tried where boxes depend on launch symbols or skip elements."""


def _meet_next(one: Box, other: Box, node: Any) -> bool:
    """Whether a box may meet in the next iteration what another one was."""
    return may_overlap(one.later(node.variable, -node.step), other)


def _tried(one: Box, other: Box, node: Any) -> int | None:
    for distance in range(2, _TRIED):
        if may_overlap(one.later(node.variable, -distance * node.step), other):
            return distance
    return None


def may_overlap(one: Box, other: Box) -> bool:
    """Whether two boxes may share an element."""
    for left, right in _compared(one, other):
        if left is not None and right is not None and _apart(left, right):
            return False
    return elements_overlap(one, other)


def _compared(one: Box, other: Box) -> Iterable[tuple[Span, Span]]:
    """The spans of two boxes that must all meet for the boxes to do so."""
    if one.spans and other.spans:
        return zip(one.spans, other.spans)
    return ((one.hull, other.hull),)


def _apart(left: tuple[Any, Any], right: tuple[Any, Any]) -> bool:
    """Whether two spans are known to share nothing."""
    start0, extent0 = left
    start1, extent1 = right
    if type(start0) is int and type(start1) is int:
        if type(extent0) is int and start0 + extent0 <= start1:
            return True
        if type(extent1) is int and start1 + extent1 <= start0:
            return True
        if type(extent0) is int and type(extent1) is int:
            return False
    distance = start1 - start0
    return _at_least(distance, extent0) or _at_least(0 - distance, extent1)


def _is_solid(one: Box, other: Box) -> bool:
    """Whether two boxes share an element where their spans meet, as far as is known."""
    return one.access is None or other.access is None or (one.dense and other.dense)


def elements_overlap(one: Box, other: Box) -> bool:
    """Whether two boxes that overlap may share an element, for what they skip."""
    if _is_solid(one, other):
        return True
    assert one.access is not None and other.access is not None
    if one.hull is None or other.hull is None:
        return overlaps(_pattern(one), _pattern(other))
    distance = other.hull[0] - one.hull[0]
    if type(distance) is not int:
        return True
    return overlaps(_in_tensor(one.access, 0), _in_tensor(other.access, distance))


def _pattern(box: Box) -> AccessPattern:
    access, (row, span) = box.access, box.spans
    assert access is not None and row is not None and span is not None
    dims = tuple(zip(_ascending(access)[1][1:], access.shape[1:]))
    memory = access.storage.memory
    return AccessPattern(memory, access.dtype, span[0], dims, row[0], access.shape[0])


def _in_tensor(access: Access, start: int) -> AccessPattern:
    """The elements of a view in HBM whose first one is at a byte."""
    dims = tuple(zip(_ascending(access)[1], access.shape))
    return AccessPattern(access.storage.memory, access.dtype, start, dims, tensor=0)


def _at_least(value: Any, limit: Any) -> bool:
    low, _ = bounds(value - limit)
    return low is not None and low >= 0
