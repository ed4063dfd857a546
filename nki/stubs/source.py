"""Python source of functions and docstrings."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from isa.alu import AluOperator
from nki.isa import enumerations

_PUBLIC_NAMES = {getattr(enumerations, name): name for name in enumerations.__all__}
"""The names that `nki.isa` gives to enumerations."""


def definition(name: str, function: Callable[..., Any]) -> str:
    """A function with the signature and documentation that it has at run time."""
    signature = inspect.signature(function)
    parameters = "".join(
        f"    {parameter.name}: {parameter.annotation}"
        + ("" if parameter.default is parameter.empty else f" = {default_text(parameter.default)}")
        + ",\n"
        for parameter in signature.parameters.values()
    )
    head = f"def {name}(\n{parameters}) -> {signature.return_annotation}:"
    return f"{head}\n{indented(docstring(inspect.getdoc(function) or ''))}"


def overloads(
    name: str, versions: Sequence[Callable[..., Any]], function: Callable[..., Any]
) -> str:
    """The ways of calling a function, each with the function's documentation."""
    document = indented(docstring(inspect.getdoc(function) or ""))
    heads = (str(inspect.signature(version)).replace("'", "") for version in versions)
    return "\n\n".join(f"@overload\ndef {name}{head}:\n{document}" for head in heads)


def default_text(value: Any) -> str:
    """A default as it is written in a kernel.

    >>> from isa.enums import Engine
    >>> default_text(Engine.unknown), default_text(None), default_text(())
    ('engine.unknown', 'None', '()')
    """
    if isinstance(value, AluOperator):
        return f"nl.{value.name}"
    if isinstance(value, Enum):
        return f"{_PUBLIC_NAMES[type(value)]}.{value.name}"
    return repr(value)


def docstring(text: str) -> str:
    """A docstring literal; raw where the text has backslashes.

    >>> docstring("One line.")
    '\"\"\"One line.\"\"\"'
    """
    prefix = "r" if "\\" in text else ""
    end = "\n" if "\n" in text else ""
    return f'{prefix}"""{text}{end}"""'


def indented(text: str, by: int = 4) -> str:
    """Text further to the right, empty lines left empty."""
    return textwrap.indent(text, " " * by)
