"""What a kernel's trace depends on, as one hashable value: equal values give equal traces.

A compiled kernel is kept under the content of its function and of its arguments. Of the function:
code, defaults, closure, and whatever globals and helper functions the code names, and they in turn.
Of arguments: shape and dtype of arrays, everything else by value. So editing a helper or a global
makes a new entry, and calling again with equal arguments does not trace again.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import sys
import sysconfig
from collections.abc import Hashable, Iterable, Iterator
from enum import Enum
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from nki import settings
from nki.ir.locations import is_own_file
from nki.trace.call import TensorSpec, is_array

_SCALARS = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), CodeType)


class Unknown(Exception):
    """A value whose content cannot be told: what depends on it is not kept."""


def fingerprint(function: Any, arguments: dict[str, Any]) -> Hashable | None:
    """The key of a function and its arguments by parameter name; None when there is none.

    >>> def scaled(a, factor):
    ...     return a * factor * SCALE
    >>> SCALE = scaled.__globals__["SCALE"] = 2
    >>> ones = np.ones(3, np.float32)
    >>> first = fingerprint(scaled, {"a": ones, "factor": 1})
    >>> first == fingerprint(scaled, {"a": ones + 1, "factor": 1})
    True
    >>> scaled.__globals__["SCALE"] = 3
    >>> first == fingerprint(scaled, {"a": ones, "factor": 1})
    False
    """
    walk = _Walk()
    try:
        key = (walk.content(function), *(walk.argument(v) for v in arguments.items()))
        hash(key)
    except (Unknown, TypeError, RecursionError):
        return None
    return key


class _Walk:
    """One pass over values; what was met before, on a cycle or again, is its number."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.alive: list[Any] = []  # no id is given twice while the walk lasts

    def argument(self, item: tuple[str, Any]) -> Hashable:
        return item[0], self.content(item[1], tensors=True)

    def content(self, value: Any, tensors: bool = False) -> Hashable:
        """The content of a value. With `tensors` arrays count by shape and dtype."""
        kind = type(value)
        if kind in _SCALARS:
            # 1, 1.0 and True are equal keys, and so are 0.0 and -0.0.
            return kind, repr(value) if kind in (float, complex) else value
        if kind is ModuleType:
            return kind, value.__name__
        if isinstance(value, Enum):
            return kind, value.name
        if isinstance(value, TensorSpec):
            return TensorSpec, value.shape, value.dtype
        if is_array(value):
            return _array(value, tensors)
        number = self.numbers.get(id(value))
        if number is not None:
            return "met", number
        self.numbers[id(value)] = len(self.numbers)
        self.alive.append(value)
        if isinstance(value, (tuple, list, set, frozenset, dict)):
            return kind, self._items(value, tensors)
        if isinstance(value, (np.generic, np.dtype, range, slice)):
            return kind, repr(value)
        return self._object(value, kind, tensors)

    def _items(self, value: Any, tensors: bool) -> Hashable:
        if isinstance(value, dict):
            return tuple((self.content(k), self.content(v, tensors)) for k, v in value.items())
        if isinstance(value, (set, frozenset)):
            return frozenset(self.content(item) for item in value)
        return tuple(self.content(item, tensors) for item in value)

    def _object(self, value: Any, kind: type, tensors: bool) -> Any:
        function = getattr(value, "function", None)
        if function is not None and _is_library(kind):  # a kernel, or a function of the language
            return kind, self.content(function)
        if isinstance(value, functools.partial):
            return kind, *map(self.content, (value.func, value.args, value.keywords))
        if isinstance(value, MethodType):
            return kind, self.content(value.__func__), self.content(value.__self__)
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, (ModuleType, BuiltinFunctionType)):  # also of a derived class
            return kind, value.__name__
        if isinstance(value, type):
            return self._class(value)
        if _is_library(kind):
            if kind.__hash__ in (None, object.__hash__) and not hasattr(value, "__dict__"):
                raise Unknown
            if hasattr(value, "__dict__") and vars(value):
                return kind, self._items(vars(value), tensors)
            return kind, value
        if not hasattr(value, "__dict__") and not dataclasses.is_dataclass(value):
            raise Unknown
        fields = (
            {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
            if dataclasses.is_dataclass(value)
            else vars(value)
        )
        return self.content(kind), self._items(fields, tensors)

    def _function(self, function: FunctionType) -> Hashable:
        code = function.__code__
        if _is_library_file(code.co_filename):
            return function
        cells = [cell.cell_contents for cell in function.__closure__ or () if _is_full(cell)]
        outside = [self.content(value) for value in _named(code, function.__globals__)]
        return (
            code,
            self.content(function.__defaults__),
            self.content(function.__kwdefaults__),
            tuple(self.content(cell) for cell in cells),
            tuple(outside),
            self._items(vars(function), False),
        )

    def _class(self, kind: type) -> Any:
        if _is_library(kind):
            return kind
        members = {
            name: member
            for name, member in vars(kind).items()
            if not (name.startswith("__") and name.endswith("__")) or _is_written(member)
        }
        bases = tuple(self.content(base) for base in (type(kind), *kind.__bases__))
        return kind, bases, tuple((n, self._member(m)) for n, m in members.items())

    def _member(self, member: Any) -> Any:
        """An attribute of a class; descriptors that Python makes for fields count as nothing."""
        function = getattr(member, "__func__", getattr(member, "fget", member))
        if isinstance(function, FunctionType):
            return self.content(function)
        try:
            return self.content(member)
        except Unknown:
            return type(member)


def _array(value: Any, tensors: bool) -> Hashable:
    if tensors:
        return "tensor", tuple(value.shape), str(value.dtype)
    array = np.ascontiguousarray(value)
    return "array", array.shape, str(array.dtype), array.tobytes()


def _is_full(cell: Any) -> bool:
    """Whether a closure's variable has a value already (a function may name itself)."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


_ANY_NAME = frozenset(("globals", "eval", "exec"))
"""Functions by which code reaches names that it does not spell."""


def _named(code: CodeType, scope: dict[str, Any]) -> Iterator[Any]:
    """What a code object names in its globals, in modules that it names there or imports, and in
    the environment of the process."""
    names = dict.fromkeys(_names(code))
    if not _ANY_NAME.isdisjoint(names):
        raise Unknown
    if "getattr" in names:
        names |= dict.fromkeys(_texts(code))
    modules: dict[str, ModuleType] = {}
    for name in names:
        if name in scope:
            yield scope[name]
            if isinstance(scope[name], ModuleType):
                modules[name] = scope[name]
    for name in _imports(code):
        for module in (f"{scope.get('__package__')}.{name}".removesuffix("."), name):
            if module in sys.modules:
                modules[module] = sys.modules[module]
    yield from _of_modules(modules, names)
    if "environ" in names or "getenv" in names:
        yield settings.environment()


def _of_modules(modules: dict[str, ModuleType], names: Iterable[str]) -> Iterator[Any]:
    """What is named in modules of the author's, and in modules that are named there."""
    seen: set[int] = set()
    left = list(modules.values())
    while left:
        module = left.pop()
        if id(module) in seen or _is_library_module(module):
            continue
        seen.add(id(module))
        for name in names:
            if name in vars(module):
                value = vars(module)[name]
                yield value
                if isinstance(value, ModuleType):
                    left.append(value)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _texts(code: CodeType) -> Iterator[str]:
    """Texts that may name attributes: `getattr(module, "factor")`."""
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from _texts(constant)


@functools.lru_cache(maxsize=4096)
def _imports(code: CodeType) -> tuple[str, ...]:
    """The modules that a function imports by itself."""
    found = [i.argval for i in dis.get_instructions(code) if i.opname == "IMPORT_NAME"]
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    return (*found, *(name for constant in inner for name in _imports(constant)))


def _is_written(member: Any) -> bool:
    """Whether a method with a special name is the author's, not one that a decorator made."""
    return isinstance(member, FunctionType) and not member.__code__.co_filename.startswith("<")


def _is_library(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    return module is None or _is_library_file(getattr(module, "__file__", None) or "<")


_LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))


def _is_library_module(module: ModuleType) -> bool:
    """Whether a module is constant while Python runs; one without a file is, unless the author
    made it."""
    file = getattr(module, "__file__", None)
    return module.__name__ in sys.builtin_module_names if file is None else _is_library_file(file)


def _is_library_file(filename: str) -> bool:
    """Whether a file is this project's or an installed package's: constant while Python runs."""
    if filename.startswith("<frozen") or filename == "<":
        return True
    return is_own_file(filename) or filename.startswith(_LIBRARIES)
