"""The page of `neuronx-cc`: options, exit codes and documented error codes, from their tables."""

from __future__ import annotations

from graph_compiler.admission import CHECKS
from graph_compiler.command.arguments import OPTIONS, Option
from graph_compiler.documented import DOCUMENTED, DocumentedCode
from graph_compiler.documented_programs import PROGRAMS
from nki.row_pages.markdown import code, page, table

_INTRODUCTION = """\
A drop-in for the compiler of the SDK: `neuronx-cc` is installed with the package, and
`python -m graph_compiler.cli` is the same command. `compile` reads a graph (HLO as a proto or text,
StableHLO with the extra `jax`; the content says which) and writes a program that `nki run`,
`nki profile` and `nki.load` take. `list-operators` lists the operators that have a form on the
device.

```text
neuronx-cc compile model.hlo.pb --framework XLA --target trn2 --output model.neff
neuronx-cc list-operators --framework XLA
```

`--option value` and `--option=value` are the same, of several that compete the right-most one
counts, and an unknown option is an error. An option does what its row says, or has no effect, which
the log says too, or is refused with an error that says that it is not there yet.

In Python the same is `graph_compiler.compile(module, target, GraphOptions(...))`. It permits no
downcasts, and refuses nothing that it can compile, unless `documented_limits=True`."""

_CACHE = """\
With NEURON_COMPILE_CACHE_URL (a path, or a `file://` URL) or --cache_dir, programs are kept as
`neuronxcc-<version>/MODULE_<graph>+<flags>/model.neff` in that folder. They are found again by the
content of the graph, the options and the compiler. Failures are not kept."""

_EXIT = """\
0 means that the program was written. Others are those of [the nki command](command-line.md): 2 for
the command line, 6 for files, 7 for graphs, 70 for a defect, 130 for Ctrl-C. Whatever the code, the
output, and each program that is kept, is whole or as it was before."""

_CODES = """\
Errors begin with the code that the SDK documents (compiler/error-codes of its documentation), where
there is one. Codes marked so are limits of the vendor's compiler: a call of
`graph_compiler.compile` raises them with `documented_limits=True` only. The page of a code has a
program that is refused for it, or says why nothing is."""

_FOLDER = "reference/codes"


def command_pages() -> dict[str, str]:
    """Pages by path below `docs/`."""
    text = page(
        "# neuronx-cc",
        _INTRODUCTION,
        "## Options of compile",
        table(("option", "meaning", "values", "default", "known from"), map(_row, OPTIONS)),
        "## Programs that are kept",
        _CACHE,
        "## Exit codes",
        _EXIT,
        "## Error codes",
        _CODES,
        table(("code", "what", "way out", "limit"), _codes()),
    )
    found = {f"{_FOLDER}/{row.code}.md": code_page(row) for row in DOCUMENTED.values()}
    return {"neuronx-cc.md": text, f"{_FOLDER}/index.md": _overview(), **found}


def code_page(row: DocumentedCode) -> str:
    """The page of a documented code."""
    program = PROGRAMS.get(row.code)
    words = "" if program is None else " ".join(("--target", program.target, *program.options))
    text = "" if program is None else "\n".join(map(_shortened, program.text.splitlines()))
    return page(
        f"# NCC_{row.code}",
        f"{row.title}.",
        f"Not raised. {row.never}" if row.never else f"Way out: {row.hint}" if row.hint else "",
        "The same as " + ", ".join(map(code, row.same)) + " of [our errors](../../errors.md)."
        if row.same
        else "",
        "A limit of the vendor's compiler: `graph_compiler.compile` raises it with "
        "`documented_limits=True` only."
        if row.code in _LIMITS
        else "",
        f"## Refused with {code(words)}" if program else "",
        f"```text\n{text}\n```" if program else "",
    )


_WIDTH = 400


def _shortened(line: str) -> str:
    return line if len(line) <= _WIDTH else f"{line[:_WIDTH]} ..."


def _overview() -> str:
    rows = [
        (f"[NCC_{row.code}]({row.code}.md)", row.title, "never" if row.never else "")
        for row in DOCUMENTED.values()
    ]
    text = "What the SDK documents that its compiler refuses, and when it is refused here."
    return page("# Documented error codes of graphs", text, table(("code", "what", "raised"), rows))


def _row(row: Option) -> tuple[str, str, str, str, str]:
    default = " ".join(row.default) if isinstance(row.default, tuple) else row.default
    return (
        ", ".join(map(code, row.names)),
        row.shown,
        ", ".join(row.values),
        "required" if row.required else "" if default in (None, True) else code(str(default)),
        row.origin,
    )


def _codes() -> list[tuple[str, str, str, str]]:
    return [
        (
            f"[`NCC_{row.code}`]({_FOLDER}/{row.code}.md)",
            row.title,
            row.hint,
            "yes" if row.code in _LIMITS else "",
        )
        for row in DOCUMENTED.values()
        if not row.never
    ]


_LIMITS = frozenset(check.code for check in CHECKS if check.limit)
