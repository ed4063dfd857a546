"""One page per machine instruction: fields, encoding, cost with sources."""

from __future__ import annotations

from struct import calcsize
from textwrap import dedent

import isa.files.encoding
import isa.files.operand_table
from isa.cost_formula import Case, Cost
from isa.files.codecs import codec
from isa.machine import MACHINE_INSTRUCTIONS
from isa.spec import MachineInstruction
from isa.wording import engines
from nki.row_pages.markdown import code, description, fields, page, source, state, table
from nki.row_pages.operations import used_by

_FIRST_FIELD = 12
"""Where the fields begin in an encoded instruction, in bytes (`isa.files.encoding`)."""

_TRANSFER = (
    "That is what starting the transfer costs. The formula of the transfer itself is in "
    "[What a transfer costs](../../how-to/hide-dma.md#what-a-transfer-costs)."
)


def machine_pages() -> dict[str, str]:
    """Pages by path: one for every machine instruction, and their overview."""
    rows = [row for _, row in sorted(MACHINE_INSTRUCTIONS.items())]
    users = used_by()
    found = {"reference/machine/index.md": _overview()}
    for row in rows:
        found[f"reference/machine/{row.name}.md"] = machine_page(row, users.get(row.name, []))
    return found


def _overview() -> str:
    rows = sorted(MACHINE_INSTRUCTIONS.values(), key=lambda row: row.opcode)
    return page(
        "# Machine instructions",
        "What programs consist of: what an engine's instruction stream holds.",
        table(("opcode", "instruction", "engines", "kind"), map(_overview_row, rows)),
        "## Encoding",
        _code_blocks(isa.files.encoding.__doc__),
        "## Operand table",
        _code_blocks(isa.files.operand_table.__doc__),
    )


def _overview_row(row: type[MachineInstruction]) -> tuple[str, ...]:
    return f"`{row.opcode:#04x}`", f"[{row.name}]({row.name}.md)", engines(row.engines), kind(row)


def _code_blocks(document: str | None) -> str:
    """A module's description without its first line; what is indented becomes code."""
    head, *parts = (document or "").strip().split("\n\n")
    _, _, rest = head.partition("\n")
    return "\n\n".join(
        f"```text\n{dedent(part)}\n```" if part.startswith("    ") else part
        for part in (*([rest] if rest else []), *parts)
    )


def kind(row: type[MachineInstruction]) -> str:
    """Whether an instruction controls the sequencer, starts a transfer, or computes."""
    if row.control:
        return "sequencer"
    return "asynchronous" if row.asynchronous else "compute"


def machine_page(row: type[MachineInstruction], users: list[str]) -> str:
    """The page of one machine instruction; `users` are operations that expand into it."""
    links = ", ".join(f"[{name}](../operations/{name}.md)" for name in users)
    return page(
        f"# {row.name}",
        description(row),
        f"*Engines:* {engines(row.engines)}",
        f"*Kind:* {kind(row)}",
        f"*Used by:* {links}" if links else "",
        "## Fields" if row.fields else "",
        fields(row),
        state(row.state),
        "## Encoding",
        _encoding(row),
        "## Cost" if row.cost else "",
        cost_text(row.cost) if row.cost else "",
        _TRANSFER if row.asynchronous else "",
        source(row.document),
    )


def _encoding(row: type[MachineInstruction]) -> str:
    rows = []
    position = _FIRST_FIELD
    for name, field in row.fields.items():
        form = codec(field)
        size = calcsize("<" + form.format)
        last = position + size - 1
        place = str(position) if size == 1 else f"{position}-{last}"
        rows.append((place, code(name), _held(form.format, form.describe)))
        position += size
    head = f"Opcode `{row.opcode:#04x}`."
    return f"{head}\n\n{found}" if (found := table(("bytes", "field", "holds"), rows)) else head


def _held(form: str, describe: str) -> str:
    """Codes of one byte stand for a value; wider ones refer to the stream's operand table."""
    direct = form == "B" or describe.startswith("an instruction")
    return describe if direct else f"{describe}, by reference"


def cost_text(cost: Cost) -> str:
    """The cases of a cost, first match first, and what the quantities are."""
    parts = [
        "How long the engine is occupied; the first case whose condition holds applies "
        "([quantities](../costs.md)):",
        _cases(cost.cases, with_unit=True),
    ]
    if cost.completion:
        parts += [
            "From the last element streamed until the result is visible to other engines, in ns:",
            _cases(cost.completion, with_unit=False),
        ]
    else:
        parts.append(
            "Until the result is visible to other engines: the `completion_ns` of the engine "
            "([targets](../targets.md))."
        )
    return "\n\n".join(parts)


def _cases(cases: tuple[Case, ...], with_unit: bool) -> str:
    """A table of cases; the last is what holds otherwise."""
    rows = []
    for case in cases:
        when = code(case.when) if case.when else "otherwise" if len(cases) > 1 else "always"
        found = case.source + (", **assumed**" if case.assumed and case.source else "")
        rows.append((code(case.formula), *([case.unit] if with_unit else []), when, found))
    return table(("formula", *(["unit"] if with_unit else []), "when", "source"), rows)
