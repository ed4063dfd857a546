"""Signature and documentation of the functions of `nki.isa`, from their rows.

`help(nisa.tensor_scalar)` shows them, and editors do by the stubs that `nki.stubs` writes.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator

from isa.cost_formula import QUANTITIES, Case
from isa.enums import Memory
from isa.expansions import expansions
from isa.fields import ENUM_KINDS, Attribute, Field, Operand, Role
from isa.spec import MachineInstruction, Operation
from isa.wording import engines, field_kind, functions, generations, where
from nki.isa.annotations import annotation, required

_WIDTH = 92
"""Columns of a line of documentation; stubs indent it by four."""


def signature(row: type[Operation], named: bool) -> inspect.Signature:
    """The parameters with their types and defaults; `named`: whether the last is `name`."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter(
            name,
            kind,
            default=inspect.Parameter.empty if required(field) else field.default,
            annotation=annotation(field, name in row.lists),
        )
        for name, field in _parameters(row)
    ]
    if named:
        name = inspect.Parameter("name", kind, default=None, annotation="str | None")
        parameters.append(name)
    return inspect.Signature(parameters, return_annotation="NkiInstruction")


def _parameters(row: type[Operation]) -> Iterator[tuple[str, Field]]:
    """Public parameters, each with its field, of lists the first."""
    for name, fields in row.parameters().items():
        yield name, row.fields[fields[0]]


def document(row: type[Operation]) -> str:
    """Contract, parameters, rules, engines, cost, source and example."""
    text, heading, example = inspect.cleandoc(row.__doc__ or row.name).partition("Example:")
    sections = [
        text.strip(),
        _section("Parameters", (_parameter(row, *item) for item in _parameters(row))),
        _section("Rules", (rule.text for rule in row.rules)),
        _engines(row),
        _cost(row),
        f"Source: SDK {row.document}" if row.document else "",
        heading + example,
    ]
    return "\n\n".join(section for section in sections if section)


def _section(title: str, lines: Iterable[str]) -> str:
    """Lines below a title, those that are long wrapped; empty without lines."""
    wrapped = [_wrapped(line) for line in lines]
    return "\n".join([f"{title}:", *wrapped]) if wrapped else ""


def _wrapped(line: str) -> str:
    """A line and what does not fit into it, which stands further to the right."""
    text = line.lstrip()
    indent = " " * (4 + len(line) - len(text))
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + " " * 4,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _parameter(row: type[Operation], name: str, field: Field) -> str:
    text = _operand(field) if isinstance(field, Operand) else _attribute(field)
    accepted = functions(row, name)
    if accepted:
        text += f", one of {', '.join(accepted)}"
    if name in row.lists:
        text = f"list of 1 to {len(row.lists[name])}, each a {text}"
    elif field.optional or field.default is None:
        text += "; may be None"
    return f"{name}: {text}" + (f"; {field.doc}" if field.doc else "")


_ROLES = {Role.read: "read", Role.write: "written", Role.update: "read and written"}


def _operand(field: Operand) -> str:
    """What may stand for an operand, where it may be, and what becomes of it."""
    number = "number, or " if field.immediate else ""
    shape = "column [P, 1]" if field.column else "tensor"
    places = " or ".join(m.value for m in Memory if m in field.memories)
    dtypes = f", one of {', '.join(sorted(field.dtypes))}" if field.dtypes else ""
    rows = ", row indices allowed" if field.vector_offset else ""
    return f"{number}{shape} in {places}, {_ROLES[field.role]}{rows}{dtypes}"


def _attribute(field: Attribute) -> str:
    """The kind of an attribute, with its limits, or its choices."""
    place = where(field)
    if field.kind in ENUM_KINDS:
        return f"one of {place}"
    return field_kind(field) + (f", {place}" if place else "")


def _engines(row: type[Operation]) -> str:
    every = len(row.generations) == 3
    return f"Engines: {engines(row.engines)}." + (
        "" if every else f" Generations: {generations(row.generations)}."
    )


def _cost(row: type[Operation]) -> str:
    """How long each machine instruction occupies its engine, and what the formulas mention."""
    lines, mentioned = [], set()
    for instruction in _instructions(row):
        cases = instruction.cost.cases if instruction.cost else ()
        texts = [_case(case, len(cases)) for case in cases]
        mentioned.update(re.findall(r"[A-Za-z_]\w*", " ".join(texts)))
        alone = len(texts) == 1
        lines += [f"{instruction.name}: {texts[0]}"] if alone else [f"{instruction.name}:"]
        lines += [] if alone else [f"    {text}" for text in texts]
    lines += [f"{name}: {text}" for name, text in QUANTITIES.items() if name in mentioned]
    return _section("Cost, how long the engine is busy (the first case that holds)", lines)


def _case(case: Case, of: int) -> str:
    condition = f" if {case.when}" if case.when else " otherwise" if of > 1 else ""
    assumed = " (assumed)" if case.assumed else ""
    return f"{case.formula} {case.unit}{condition}{assumed}"


def _instructions(row: type[Operation]) -> list[type[MachineInstruction]]:
    """The machine instructions that an operation may expand into, each once."""
    found = (i.row for _, instructions in expansions(row) for i in instructions)
    return list(dict.fromkeys(found))
