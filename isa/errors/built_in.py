"""Which of Python's exceptions an error is, too, so that programs catch it as the documents say."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

BuiltIn = tuple[type[Exception], ...]

_OF_OPERATIONS: BuiltIn = (AssertionError,)
"""SDK nki/guides/nki_simulator.rst, "Hardware Constraint Validation": a constraint of an operation
that does not hold is an AssertionError."""

_OF_DATA_TYPES: BuiltIn = (AssertionError, TypeError)
"""TypeError: SDK release-notes/components/nki.rst, 0.4.0, "JAX dtype support"."""

_OF_REGISTERS: BuiltIn = (TypeError,)
"""SDK nki/api/nki/isa/__init__.py, VirtualRegister: a register in Python's control flow, or where
Python needs a number, is a TypeError."""

_OF_CALLS: BuiltIn = (TypeError,)
"""As Python has it for the arguments of any function."""

_OF_NAMES: BuiltIn = (AttributeError,)
"""As Python has it for an attribute of a module or an object."""

_BY_CODE = {
    "argument-kind": _OF_CALLS,
    "dtype-not-allowed": _OF_DATA_TYPES,
    "missing-argument": _OF_CALLS,
    "register-arithmetic": _OF_REGISTERS,
    "register-branch": _OF_REGISTERS,
    "unknown-argument": _OF_CALLS,
    "unknown-name": _OF_NAMES,
}


def built_in(code: str, number: int) -> BuiltIn:
    """The exceptions of Python that errors of a kind are; numbers 1xx are those of operations.

    >>> built_in("partition-limit", 101)
    (<class 'AssertionError'>,)
    """
    return _BY_CODE.get(code, _OF_OPERATIONS if number < 200 else ())


@lru_cache
def also(kind: type[Any], exceptions: BuiltIn) -> type[Any]:
    """A class of errors as a subclass of exceptions, which looks the same.

    >>> also(KeyError, (AssertionError,)).__mro__[:3]
    (<class 'KeyError'>, <class 'KeyError'>, <class 'LookupError'>)
    """
    if not exceptions:
        return kind
    same = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
    }
    return type(kind.__name__, (kind, *exceptions), same)
