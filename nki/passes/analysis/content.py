"""Keys of code: equal for lists of nodes that do the same; and results that are cached by such
keys.

Two lists have one key if they do the same to tensors of the same form: copies of an unrolled loop,
layers, cores, kernels with parts in common. Names, source lines, and where in its HBM tensors a
list begins make no difference. So a costly decision is made once for all lists with one key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from isa.affine import Affine, Polynomial, Predicate, identical, structure
from isa.affine.polynomial import form_key
from isa.dtypes import DTYPES
from nki.ir.nodes import Access, Loop, Node, Op, Register, Tensor, bytes_of
from nki.ir.rewrite import PLAIN

_EQUAL_BY_VALUE = PLAIN - {float}
"""Types of values that are alike where they are equal; others have to print alike."""

KEPT = 256
"""Contents of one kind of question whose answers are kept."""

_T = TypeVar("_T")


class Content:
    """The content of a list of nodes, which `of` is called with once.

    `tensors` are numbered as they come; `lowest` has of those in HBM the first byte of what is
    viewed, as far as it is known, where that is not all of the tensor. Views are told by their
    distance from there. `outer` tells registers from outside apart. With `located`, names and
    source lines make a difference.
    """

    def __init__(self, outer: Mapping[Register, Any] | None = None, located: bool = False) -> None:
        self._outer = outer or {}
        self._located = located
        self.tensors: dict[Tensor, tuple[Any, ...]] = {}
        self.lowest: dict[Tensor, int] = {}
        self._fixed: dict[Tensor, None] = {}
        self._places: list[tuple[Tensor, int]] = []
        self._views: dict[int, tuple[Any, ...]] = {}
        self._registers: dict[Register, tuple[Any, ...]] = {}
        self._ahead: dict[Register, int] = {}
        self._ops: dict[Op, int] = {}

    def of(self, nodes: Sequence[Node]) -> tuple[Any, ...]:
        """Equal for nodes that do the same."""
        form: list[Any] = []
        self._enter(nodes, form)
        lowest = self.lowest
        form += [place - lowest[tensor] for tensor, place in self._places]
        form += [lowest.get(tensor, 0) for tensor in self._fixed]
        return tuple(form)

    def _enter(self, nodes: Sequence[Node], form: list[Any]) -> None:
        views, ops = self._views, self._ops
        for node in nodes:
            if self._located:
                form += _line(node.location), node.name if isinstance(node, Op) else None
            if not isinstance(node, Op):
                self._loop(node, form)
                continue
            form.append(node.row)
            ops[node] = len(ops)
            if node.after:
                form += [ops.get(other, -1) for other in node.after]
            for value in node.values:
                kind = value.__class__
                if kind in _EQUAL_BY_VALUE:
                    form += kind, value
                elif isinstance(value, Access):
                    form.append(views.get(id(value)) or self._view(value))
                else:
                    form.append(self._value(value))

    def _loop(self, node: Any, form: list[Any]) -> None:
        """A loop between numbers is told by how far it goes; its variable is ahead of one that
        begins at 0."""
        form.append(node.__class__)
        if isinstance(node, Loop):
            lower, upper = node.lower, node.upper
            if type(lower) is int and type(upper) is int:
                self._ahead[node.variable] = lower
                lower, upper = 0, upper - lower
            self._registers.setdefault(node.variable, (len(self._registers),))
            form += node.step, node.unroll, self._value(lower), self._value(upper)
        else:
            form.append(self._value(node.register))
        self._enter(node.body, form)
        form.append(None)

    def _value(self, value: Any) -> Any:
        """Any value; those of one type by what they are, others by how they print."""
        kind = value.__class__
        if kind in _EQUAL_BY_VALUE:
            return kind, value
        if isinstance(value, Access):
            return self._views.get(id(value)) or self._view(value)
        if isinstance(value, Register):
            return kind, self._register(value)
        if isinstance(value, Affine):
            constant, terms = self._form(value)
            return kind, _number(constant), terms
        if isinstance(value, Polynomial):
            return kind, form_key(value)
        if isinstance(value, Predicate):
            return kind, value.op, self._value(value.form)
        if isinstance(value, (tuple, list)):
            return kind, *map(self._value, value)
        return kind, (kind is float and value) or repr(value)  # zeros are told by their sign

    def _register(self, register: Register) -> tuple[Any, ...]:
        """A register that is used for what it holds."""
        number = self._registers.setdefault(register, (len(self._registers),))
        bounds = _number(register.lower), _number(register.upper)
        return *number, self._outer.get(register), self._ahead.get(register, 0), *bounds

    def _form(self, form: Affine, size: int = 1) -> tuple[Any, ...]:
        """An index form times `size`: its terms and what it is where they are nothing."""
        constant, terms = form.constant * size, []
        for register, factor in form.terms:
            ahead = self._ahead.get(register)
            if ahead is None or type(factor) is not int:
                terms.append((self._register(register), _number(factor)))
            else:
                terms.append((self._registers[register], factor))
                constant += ahead * factor * size
        return constant, tuple(terms)

    def _view(self, access: Access) -> tuple[Any, ...]:
        """A view; a known place in HBM is entered, and told by its number."""
        tensor, offset, size = access.storage, access.offset, DTYPES[access.dtype].size
        terms: tuple[Any, ...] = ()
        if isinstance(offset, Affine):
            offset, terms = self._form(offset, size)
        else:
            offset = offset * size
        vector = access.vector_offset
        extra: tuple[Any, ...] = ()
        if vector is not None or access.limits is not None:
            strides = _number(access.vector_stride), _number(access.vector_bound)
            limits = None if access.limits is None else tuple(map(self._value, access.limits))
            extra = None if vector is None else self._view(vector), *strides, limits
        if tensor.memory.on_chip:
            place: Any = _number(offset)
        elif type(offset) is not int or extra:
            self._fixed[tensor] = None
            place = _number(offset)
        elif is_whole(access):
            place = None, offset
        else:
            place = (len(self._places),)
            self._places.append((tensor, offset))
            if offset < self.lowest.setdefault(tensor, offset):
                self.lowest[tensor] = offset
        view = (
            self._tensor(tensor),
            access.dtype,
            _numbers(access.shape),
            _numbers(access.strides),
            place,
            terms,
            extra,
        )
        self._views[id(access)] = view
        return view

    def _tensor(self, tensor: Tensor) -> tuple[Any, ...]:
        known = self.tensors.get(tensor)
        if known is None:
            within: Any = None
            if tensor.within is not None:
                within = self._tensor(tensor.within), self._value(tensor.offset)
            kind = tensor.memory, tensor.dtype, _numbers(tensor.shape), tensor.address, within
            known = self.tensors[tensor] = len(self.tensors), *kind
        return known


def is_whole(access: Access) -> bool:
    """Whether an access has as many bytes as its tensor, which leaves it no other place."""
    count = DTYPES[access.dtype].size * math.prod(access.shape)
    return bool(identical(count, bytes_of(access.storage)))


def _number(value: Any) -> Any:
    """A number as a key, which asks no question where it is compared."""
    return None if value is None else structure(value)


def _numbers(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return values if {int}.issuperset(map(type, values)) else tuple(map(_number, values))


def _line(location: Any) -> Any:
    """A source line. Traced ones have a code object, whose comparison would walk its constants."""
    return (id(location[0]), location[1]) if type(location) is tuple else location


@cache
def _answers(question: str) -> dict[Any, Any]:
    return {}


def kept(question: str, key: Any, answer: Callable[[], _T]) -> _T:
    """What was the answer to a question where the key was the same, in any kernel of the process;
    asked now if it is not known."""
    known = _answers(question)
    if key not in known:
        found = answer()
        if len(known) >= KEPT:
            known.clear()
        known[key] = found
    result: _T = known[key]
    return result


def forget() -> None:
    """Keep no answers any longer."""
    _answers.cache_clear()
