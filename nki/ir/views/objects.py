"""`nl.NKIObject`: the base of the classes that kernels use for configuration."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from abc import ABCMeta
from collections.abc import Callable
from typing import Any


class NKIObject(metaclass=ABCMeta):  # noqa: B024 (abstract for `register` alone)
    """Base of the classes that kernels use for configuration; tensors count as such objects too.

    Without an `__init__` of its own a subclass takes its annotated attributes, by position too, and
    any other keyword argument as an attribute. Those that are not given have the value of the
    class, or None. Then `__post_init__` is called (SDK nki/get-started/nki-language-guide.rst,
    Class Support). A subclass that is a dataclass may be built without some of its fields; reading
    one that was not given raises AttributeError. Its attributes that are no fields, because they
    have no annotation, may be given as well. Public kernels rely on both (nki-library
    core/mlp/mlp_tkg/mlp_tkg_constants.py, `remainderIFused`; core/attention/attention_cte.py,
    `SectionParams`). Source: SDK nki/api/nki/language/__init__.py (NKIObject).

    >>> import dataclasses, nki.language as nl
    >>> nl.NKIObject(block=4).block
    4
    >>> class Switch(nl.NKIObject):
    ...     position: int
    ...     on: bool = False
    >>> Switch(3).position, Switch(3).on
    (3, False)
    >>> @dataclasses.dataclass
    ... class Tiling(nl.NKIObject):
    ...     rows: int
    ...     columns: int
    >>> Tiling(rows=2).rows
    2
    >>> hasattr(Tiling(rows=2), "columns")
    False
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> NKIObject:
        # The decorator writes __init__ after the class is made, so this is the first chance.
        if "__dataclass_fields__" in cls.__dict__ and not hasattr(cls.__init__, "takes_part"):
            fields = frozenset(cls.__dict__["__dataclass_fields__"])
            cls.__init__ = _taking_part(cls.__init__, fields)  # type: ignore[method-assign]
        return super().__new__(cls)

    def __init__(self, *args: object, **kwargs: object) -> None:
        own = type(self).__init__ is not NKIObject.__init__  # which calls this one
        names = [] if own else _annotated(type(self))
        given = dict(zip(names, args))
        twice = [name for name in given if name in kwargs]
        if len(args) > len(names) or twice:
            what = f"two values for {twice[0]}" if twice else f"{len(args)} values"
            raise TypeError(f"{type(self).__name__}({', '.join(names)}) was given {what}")
        absent = {name: None for name in names if not hasattr(self, name)}
        for name, value in (absent | given | kwargs).items():
            setattr(self, name, value)
        finish = getattr(self, "__post_init__", None)
        if finish is not None and not own:
            finish()


def _annotated(kind: type) -> list[str]:
    """The annotated attributes of a class, those of its bases first."""
    classes = [base for base in reversed(kind.__mro__) if issubclass(base, NKIObject)]
    return list(dict.fromkeys(name for base in classes for name in inspect.get_annotations(base)))


def _taking_part(initialise: Callable[..., None], fields: frozenset[str]) -> Callable[..., None]:
    """A dataclass's `__init__` that leaves fields which are not given unset, and sets attributes
    that are no fields."""

    @functools.wraps(initialise)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            initialise(self, *args, **kwargs)
        except TypeError:
            absent = _absent(self, args, kwargs)
            others = [name for name in kwargs if name not in fields and hasattr(self, name)]
            if not absent and not others:
                raise
            given = {name: kwargs[name] for name in kwargs if name not in others}
            initialise(self, *args, **given, **dict.fromkeys(absent))
            for name in absent:
                object.__delattr__(self, name)
            for name in others:
                object.__setattr__(self, name, kwargs[name])

    __init__.takes_part = True  # type: ignore[attr-defined]
    return __init__


def _absent(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """Fields without a default that a call does not give."""
    positional = [f for f in dataclasses.fields(self) if f.init and not f.kw_only]
    given = {*kwargs, *(f.name for f in positional[: len(args)])}
    missing = dataclasses.MISSING
    return [
        f.name
        for f in dataclasses.fields(self)
        if f.init and f.name not in given and f.default is missing and f.default_factory is missing
    ]
