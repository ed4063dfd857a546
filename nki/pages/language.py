"""The pages of functions: of `nki.language`, what they compute and how exactly; of
`nki.collectives`, each with its contract and an example that runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import nki.collectives as ncc
import nki.language as nl
from nki.language.operators import OPERATORS, bound_text
from nki.row_pages.markdown import code, page, table


def language_pages() -> dict[str, str]:
    """Pages by path."""
    return {"reference/language.md": _functions()}


def _functions() -> str:
    element_wise = (
        (
            code(f"nl.{name}{_parameters(operator)}"),
            function.summary,
            bound_text(function),
            ", ".join(_uses(operator)),
        )
        for name, operator in sorted(OPERATORS.items())
        if (function := operator.function) is not None
    )
    only_operators = (
        (code(f"nl.{name}"), ", ".join(_uses(operator)))
        for name, operator in sorted(OPERATORS.items())
        if operator.function is None
    )
    others = (
        (code(f"nl.{name}{_parameters(function)}"), _first_line(function))
        for name, function in _other_functions()
    )
    return page(
        "# Language (nki.language)",
        "Element-wise functions make a new tile in SBUF when they are called; under the same name "
        "they are the `op` of operations. Bounds are those of fp32 results.",
        "## Element-wise functions",
        table(("function", "result", "accuracy", "as `op`"), element_wise),
        "## Operators only",
        table(("name", "as `op`"), only_operators),
        "## Other functions",
        table(("function", "what it does"), others),
    )


def _uses(operator: Any) -> Iterator[str]:
    if operator.alu is not None:
        yield "ALU operator"
    if operator.activation is not None:
        yield "activation function"


def _other_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in sorted(nl.__all__):
        value = getattr(nl, name)
        if inspect.isfunction(value):
            yield name, value


def _parameters(function: Callable[..., Any]) -> str:
    """Names and defaults, as they are written."""
    shown = []
    for parameter in inspect.signature(function).parameters.values():
        default = parameter.default
        text = default.name if hasattr(default, "name") else repr(default)
        missing = default is inspect.Parameter.empty
        shown.append(parameter.name if missing else f"{parameter.name}={text}")
    return f"({', '.join(shown)})"


def _first_line(function: Callable[..., Any]) -> str:
    """The first paragraph of the docstring."""
    return (inspect.getdoc(function) or "").partition("\n\n")[0]


def collective_pages() -> dict[str, str]:
    """Pages by path."""
    return {"reference/collectives.md": _collectives()}


def _collectives() -> str:
    return page(
        "# Collectives (nki.collectives)",
        "Communication between the ranks of a distributed kernel. `simulate_ranks` runs them in "
        "one process, a thread each; a compiled program is for one rank and has no collectives.",
        *(_section(name, getattr(ncc, name)) for name in sorted(ncc.__all__)),
    )


def _section(name: str, value: Any) -> str:
    """Heading, contract and example of one name; docstrings end with the example."""
    contract, mark, example = (inspect.getdoc(value) or "").partition(">>> ")
    shown = f"\n\n```pycon\n{(mark + example).strip()}\n```" if mark else ""
    return f"## {name}{_parameters(value)}\n\n{contract.strip()}{shown}"
