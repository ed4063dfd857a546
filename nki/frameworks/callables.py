"""What may be a kernel besides a plain function: methods, partial applications, objects."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any


def with_name(function: Callable[..., Any]) -> Callable[..., Any]:
    """A callable with a `__name__`: that of what a partial application calls, or of an object's
    class.

    >>> with_name(functools.partial(max, 1)).__name__
    'max'
    """
    if hasattr(function, "__name__"):
        return function
    if isinstance(function, functools.partial):
        result, name = functools.partial(function), with_name(function.func).__name__
    else:
        method: Any = function.__call__  # type: ignore[operator]
        result, name = functools.partial(method), type(function).__name__
    result.__name__ = name  # type: ignore[attr-defined]
    return result


def is_method(function: Callable[..., Any]) -> bool:
    """Whether a function in a class body is called on an instance, which it takes as `self`."""
    return isinstance(function, FunctionType) and function.__code__.co_varnames[:1] == ("self",)


def innermost(function: Any) -> Any:
    """The function whose code runs when a method or a partial application is called."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__func__", function)


def stops_in_debugger(function: Any) -> bool:
    """Whether the code of a kernel (not what it calls) has `breakpoint()`, or `set_trace()` as
    debuggers name it.

    >>> stops_in_debugger(lambda: breakpoint()), stops_in_debugger(lambda: print())
    (True, False)
    """
    code = getattr(innermost(function), "__code__", None)
    return code is not None and _stops(code)


@functools.lru_cache(1 << 10)
def _stops(code: CodeType) -> bool:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return not _DEBUGGERS.isdisjoint(code.co_names) or any(map(_stops, inner))


_DEBUGGERS = frozenset({"breakpoint", "set_trace"})
