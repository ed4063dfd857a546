"""Reference pages of the operator table: one for every HLO opcode, and their overview."""

from __future__ import annotations

import inspect
import sys

from graph_compiler.command.reference import command_pages
from graph_compiler.frontends.sniff import load
from graph_compiler.hlo.operators import CUSTOM_CALLS, FAMILIES, OPERATORS, REFUSED
from graph_compiler.hlo.operators.custom import IDENTITIES
from graph_compiler.hlo.operators.examples import example_module, example_ranks, example_text
from graph_compiler.hlo.operators.row import ARITHMETIC, TRANSCENDENTAL, Array, HloOperator
from graph_compiler.hlo.record import fields_of
from graph_compiler.hlo.text_values import show_literal
from graph_compiler.hlo.types import Shape
from nki.row_pages.markdown import code, page, table

_WORK = {ARITHMETIC: "1 operation", TRANSCENDENTAL: "1 function that is not exact"}


def operator_pages() -> dict[str, str]:
    """Pages by path below `docs/`, with that of the command `neuronx-cc`.

    >>> sorted(operator_pages())[:2]
    ['neuronx-cc.md', 'reference/codes/EARG001.md']
    """
    found = {f"reference/hlo/{opcode}.md": operator_page(row) for opcode, row in _rows()}
    return {"reference/hlo/index.md": _overview(), **found, **command_pages()}


def _rows() -> list[tuple[str, type[HloOperator]]]:
    return sorted(OPERATORS.items())


def operator_page(row: type[HloOperator]) -> str:
    """The page of one opcode."""
    facts = [
        ("XLA builder", ", ".join(map(code, row.builders))),
        ("StableHLO", code(row.stablehlo) if row.stablehlo else ""),
        ("operands", _count(*row.arity)),
        ("called computations", "" if row.calls == (0, 0) else _count(*row.calls)),
        ("element types of operands", ", ".join(sorted(getattr(row, "kinds", ())))),
        ("work for each element of the result", _WORK.get(row.per_element, "")),
    ]
    fields = fields_of("HloInstructionProto")
    return page(
        f"# {row.opcode}",
        inspect.cleandoc(row.__doc__ or ""),
        table(("", ""), [fact for fact in facts if fact[1]]),
        "## Attributes" if row.attributes else "",
        table(
            ("field of HloInstructionProto", "type"),
            (
                (code(name), code(fields[name].type + "[]" * fields[name].repeated))
                for name in row.attributes
            ),
        ),
        "## Example",
        _example(row.opcode),
        f"Source: <{row.link()}>. Family: {_family(row)}",
    )


def _example(opcode: str) -> str:
    """A graph and what comes out of it."""
    results = "\n".join(example_results(opcode))
    return f"```text\n{example_text(opcode)}\n```\n\ngives\n\n```text\n{results}\n```"


def example_results(opcode: str) -> list[str]:
    """The outputs of the example of an opcode, a line each.

    >>> example_results("reverse")
    ['f32[3] {3, 2, 1}']
    """
    from graph_compiler.evaluate import evaluate_ranks

    ranks = example_ranks(opcode)
    outputs = evaluate_ranks(load(example_module(opcode).encode()), [[]] * ranks)
    return [
        (f"rank {rank}: " if ranks > 1 else "") + f"{Shape.of(array)} {_literal(array)}"
        for rank, arrays in enumerate(outputs)
        for array in arrays
    ]


def _literal(array: Array) -> str:
    return show_literal(array, Shape.of(array))


def _count(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} or more"
    return f"{least}" if least == most else f"{least} to {most}"


def _family(row: type[HloOperator]) -> str:
    """The first line of the file that the row stands in."""
    return (inspect.getdoc(sys.modules[row.__module__]) or "").partition("\n")[0]


def _overview() -> str:
    parts = []
    for family in FAMILIES:
        rows = [
            (
                f"[{opcode}]({opcode}.md)",
                ", ".join(row.builders),
                row.stablehlo,
                inspect.cleandoc(row.__doc__ or "").partition("\n\n")[0],
            )
            for opcode, row in _rows()
            if row.__module__ == family.__name__
        ]
        if rows:
            title = (inspect.getdoc(family) or "").partition("\n")[0].rstrip(".")
            columns = ("opcode", "XLA builder", "StableHLO", "meaning")
            parts += [f"## {title}", table(columns, rows)]
    return page(
        "# HLO operators",
        "The opcodes of graphs that are read, checked and evaluated, with the names that "
        "`neuronx-cc list-operators` and the XLA builder give them.",
        *parts,
        "## Custom calls",
        "Targets with a meaning of their own; others take a function, `evaluate(..., "
        "custom_calls={target: function})`.",
        table(
            ("target", "meaning"),
            (
                (code(target), "gives its operands back" if target in IDENTITIES else _meaning(fn))
                for target, fn in sorted(CUSTOM_CALLS.items())
            ),
        ),
        "## Opcodes that are refused",
        table(("opcode", "reason"), ((code(name), why) for name, why in REFUSED.items())),
    )


def _meaning(function: object) -> str:
    return inspect.getdoc(function) or ""
