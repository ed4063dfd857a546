"""One run of `neuronx-cc`, from its words to its exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graph_compiler.command.arguments import UsageError, parsed
from graph_compiler.command.journal import Journal
from graph_compiler.options import DOWNCASTS, GraphOptions
from isa.errors import NeuronError
from nki import settings
from nki.cli.exit_codes import INTERNAL, INTERRUPTED, OK, USAGE, exit_code_of

if TYPE_CHECKING:
    from graph_compiler.command.cache import CachedProgram
    from graph_compiler.compiled import Compiled
    from graph_compiler.hlo.graph import Module

_SAVED = "SaveTemps"
_TILES = "tensorize"


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code (`nki.cli.exit_codes`)."""
    try:
        values = parsed(sys.argv[1:] if arguments is None else arguments)
        return _COMMANDS[values.command](values)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE.number
    except SystemExit as error:  # --help
        return int(error.code or 0)
    except NeuronError as error:  # before there is a log
        print(_explained(error), file=sys.stderr)
        return exit_code_of(error.code, error.number).number


def _listed(values: argparse.Namespace) -> int:
    from graph_compiler.lower.assemble import compiled_operators

    print("\n".join(compiled_operators()))
    return OK.number


def _compiled(values: argparse.Namespace) -> int:
    options = _options(values)
    with Journal(values.logfile, values.verbose, values.logfile_verbose) as journal:
        try:
            _notices(values, journal)
            _compile(values, options, journal)
            return OK.number
        except NeuronError as error:
            journal.error(_explained(error))
            return exit_code_of(error.code, error.number).number
        except KeyboardInterrupt:
            journal.error("interrupted")
            return INTERRUPTED.number
        except Exception as error:
            journal.critical(f"internal error: {type(error).__name__}: {error}")
            if settings.traceback_wanted():
                raise
            return INTERNAL.number


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "compile": _compiled,
    "list-operators": _listed,
}


def _options(values: argparse.Namespace) -> GraphOptions:
    """The options of the graph. Raises UsageError."""
    cores = values.logical_cores or settings.logical_core_size() or 1
    if len(values.model) != 1:
        raise UsageError(f"one model is compiled at a time, not {len(values.model)}")
    return GraphOptions(
        auto_cast=values.auto_cast,
        auto_cast_type=values.auto_cast_type,
        emulate_fp8_e4m3fn=bool(values.fp8),
        implicit_integer_downcast=_downcasts(values.downcast),
        native_int64=values.native_int64,
        saturate_infinity=bool(values.saturate),
        logical_cores=int(cores),
        documented_limits=True,
        model_type=values.model_type,
        optimisation=int(values.level),
    )


_SETS = {"default": DOWNCASTS, "all": DOWNCASTS, "none": frozenset[str]()}


def _downcasts(text: str) -> frozenset[str]:
    found = _SETS.get(text)
    if found is not None:
        return found
    names = frozenset(text.split(","))
    if not names <= DOWNCASTS:
        listed = ", ".join(sorted(DOWNCASTS))
        raise UsageError(
            f"--implicit-integer-downcast {text}: it is default, all, none or a list of {listed}"
        )
    return names


_SOURCE, _SOURCE_FILE = "--print-nki", "nki.py"
"""A word within --tensorizer-options, and the file that it has written."""


def _is_source_wanted(values: argparse.Namespace) -> bool:
    return _SOURCE in (values.tensorizer or "").split()


def _notices(values: argparse.Namespace, journal: Journal) -> None:
    """Say which options have no effect."""
    for word in (values.tensorizer or "").split():
        if word != _SOURCE:
            journal.info(f"--tensorizer-options {word} has no effect")
    for row in values.used:
        if row.deprecated:
            instead = f"use {row.deprecated}" if row.deprecated != "nothing" else "leave it out"
            journal.warning(f"{row.names[0]} is deprecated: {instead}")
        if row.no_effect:
            journal.info(f"{row.names[0]} has no effect: {row.no_effect}")


def _compile(values: argparse.Namespace, options: GraphOptions, journal: Journal) -> None:
    from isa.files.complete import complete
    from nki.cli.output_files import check_writable

    tiles, saves = _TILES in values.pipeline, _SAVED in values.pipeline
    if not tiles:
        check_writable(values.output)
    if values.report:
        check_writable(values.report)
    journal.begun("read")
    source = _bytes(values.model[0])
    more = saves or values.report or _is_source_wanted(values)
    kept = None if tiles or more else _kept(values, options, source)
    data = kept.find() if kept is not None else None
    if data is not None:
        journal.info(f"found {kept.path if kept else ''}")
    else:
        module = _module(source, values, options)
        _warn_of_downcasts(module, values, options, journal)
        journal.ended("read", "assemble")
        if tiles:
            _print_tiles(module, values, options, saves, journal)
            return
        data = _program(module, values, options, saves, journal)
        if kept is not None:
            kept.keep(data)
    with complete(values.output) as part:
        part.write_bytes(data)
    journal.info(f"wrote {values.output}, {len(data)} bytes")


def _bytes(path: str) -> bytes:
    from graph_compiler.frontends.sniff import read_file

    return read_file(path)


def _kept(values: argparse.Namespace, options: GraphOptions, source: bytes) -> CachedProgram | None:
    from graph_compiler.command.cache import CachedProgram

    root = values.cache or settings.compile_cache()
    if values.no_cache or root is None:
        return None
    return CachedProgram(root, source, f"{values.target} {_shown(options)}")


def _shown(options: GraphOptions) -> str:
    """The options in a fixed order; sets have none of their own."""
    from dataclasses import fields

    items = ((item.name, getattr(options, item.name)) for item in fields(options))
    return repr([(n, sorted(v) if isinstance(v, frozenset) else v) for n, v in items])


def _module(source: bytes, values: argparse.Namespace, options: GraphOptions) -> Module:
    """The graph, verified, and found to be one that is compiled."""
    from graph_compiler.admission import admit, require_static
    from graph_compiler.frontends.sniff import load
    from graph_compiler.hlo.verify import verify

    module = load(source, check=False)
    require_static(module)
    if "--verify-hlo=false" not in (values.reader or ""):
        verify(module)
    admit(module, settings.target(values.target), options)
    return module


_PRODUCT = "EVRF035"


def _warn_of_downcasts(
    module: Module, values: argparse.Namespace, options: GraphOptions, journal: Journal
) -> None:
    """What would be refused without the permission to downcast, and loses bits with it."""
    from graph_compiler.admission import findings
    from graph_compiler.documented import documented_code

    strict = replace(options, implicit_integer_downcast=frozenset())
    for error in findings(module, settings.target(values.target), strict):
        if documented_code(error) == _PRODUCT:
            journal.warning(f"{error.what} It is computed in fp32, exactly up to 2^24.")


def _print_tiles(
    module: Module,
    values: argparse.Namespace,
    options: GraphOptions,
    saves: bool,
    journal: Journal,
) -> None:
    from graph_compiler.lower.assemble import assemble
    from graph_compiler.options import check_target
    from nki.ir.text import print_kernel
    from nki.ir.text.source import print_source

    target = settings.target(values.target)
    check_target(options, target)
    kernel = assemble(module, target, options)
    text = print_source(kernel)
    journal.ended("assemble")
    if saves:
        _save_text("tile_ir.txt", print_kernel(kernel))
        _save_graph(module)
    if _is_source_wanted(values):
        _save_text(_SOURCE_FILE, text)
    print(text, end="")


def _program(
    module: Module,
    values: argparse.Namespace,
    options: GraphOptions,
    saves: bool,
    journal: Journal,
) -> bytes:
    """The container of the compiled graph."""
    from graph_compiler.compiled import compile
    from isa.files.container import write
    from isa.files.text import disassemble
    from nki.ir.text import print_kernel
    from nki.ir.text.source import print_source
    from nki.pipeline import STAGES

    following = dict(zip(STAGES, (*STAGES[1:], "verify")))
    names = {"trace": "assemble"}

    def observe(stage: str, product: Any) -> None:
        if saves and stage in names:
            _save_text("tile_ir.txt", print_kernel(product))
        if _is_source_wanted(values) and stage in names:
            _save_text(_SOURCE_FILE, print_source(product))
        journal.ended(names.get(stage, stage), following.get(stage, ""))

    compiled = compile(module, values.target, options, observe)
    program = compiled.kernel.program
    if saves:
        _save_graph(module)
        _save_text("program.txt", disassemble(program))
    if values.report:
        journal.ended("verify", "report")
        _report(compiled, values.report)
        journal.ended("report", "write")
    data = write(program, compiled.metadata)
    journal.ended("write")
    return data


def _report(compiled: Compiled, path: str) -> None:
    import json

    from graph_compiler.report import html, report_of

    found = report_of(compiled)
    _save_text(path, json.dumps(found, indent=1) if path.endswith(".json") else html(found))


def _save_graph(module: Module) -> None:
    from graph_compiler.hlo.text import print_text

    _save_text("graph.hlo.txt", print_text(module))


def _save_text(path: str, text: str) -> None:
    from isa.files.complete import complete

    with complete(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def _explained(error: NeuronError) -> str:
    """An error with the code that the SDK documents for it, where there is one."""
    from graph_compiler.documented import documented_code
    from nki.errors import explain

    code, text = documented_code(error), explain(error)
    return text if code is None or f"NCC_{code}" in text else f"NCC_{code}: {text}"
