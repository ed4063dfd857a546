"""Options of `neuronx-cc`, one row each, and the parser that is made of them.

Source: compiler/neuronx-cc/api-reference-guide/index.rst of the SDK's documentation; rows whose
`origin` is a client are not in it, but public programs pass them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from graph_compiler.options import CAST_TYPES, CASTS, DOWNCASTS, MODEL_TYPES, NATIVE_INT64

TARGETS = ("inf2", "trn1", "trn1n", "trn2", "trn3")
VERBOSITY = ("debug", "info", "warning", "error", "critical")
PIPELINE = ("compile", "tensorize", "SaveTemps")
_DOCUMENTED = "reference guide"
_NKIPY = "nkipy"
_WRAPPER = "framework wrapper"


@dataclass(frozen=True, slots=True)
class Option:
    """One option of `compile`.

    `meaning`: what it does here. `no_effect`: why it changes nothing, in the same words in which
    the log says so. `deprecated`: what to write instead. `constant`: what a flag stores; options
    without one take a value. `place`: the name of the value, which several options may share, so
    that the right-most one counts.
    """

    names: tuple[str, ...]
    place: str
    meaning: str
    values: tuple[str, ...] = ()
    default: Any = None
    constant: Any = None
    required: bool = False
    several: bool = False
    no_effect: str = ""
    deprecated: str = ""
    origin: str = _DOCUMENTED

    @property
    def shown(self) -> str:
        """What help and page say: the meaning, and why it is of no effect where it is not."""
        notes = [self.meaning]
        if self.deprecated:
            notes.append("Deprecated.")
        if self.no_effect:
            notes.append(f"No effect: {self.no_effect}.")
        return " ".join(notes)


_ONE_RESULT = "hints choose between equal results; there is one program whatever they are"
_DEBUGGING = "it prints what only the vendor's compiler has inside"

OPTIONS: tuple[Option, ...] = (
    Option(
        ("--framework",),
        "framework",
        "The system that the graph comes from.",
        values=("XLA",),
        required=True,
    ),
    Option(
        ("--target",),
        "target",
        "The device to compile for.",
        values=TARGETS,
        required=True,
    ),
    Option(
        ("--model-type",),
        "model_type",
        "The kind of model.",
        values=MODEL_TYPES,
        default="generic",
        no_effect=_ONE_RESULT,
    ),
    Option(
        ("--auto-cast",),
        "auto_cast",
        "Which fp32 values are cast: none, operands of products and convolutions, or all. "
        "Parameters and results keep their types.",
        values=CASTS,
        default="none",
    ),
    Option(
        ("--auto-cast-type",),
        "auto_cast_type",
        "The type that they are cast to.",
        values=tuple(CAST_TYPES),
        default="bf16",
    ),
    Option(
        ("--native-int64",),
        "native_int64",
        "64-bit integers: in all modes, values that provably fit become 32-bit ones, and any are "
        "moved and compared. Others are computed exactly in pairs of 32-bit ones if enabled, else "
        "refused instead of losing bits.",
        values=NATIVE_INT64,
        default="default",
    ),
    Option(
        ("--implicit-integer-downcast",),
        "downcast",
        "Which operations may compute integers in a type that does not hold all of them: default "
        "(all), all, none, or a list of " + ", ".join(sorted(DOWNCASTS)) + ". Others are refused "
        "(NCC_EVRF035, 060 to 063).",
        default="default",
    ),
    Option(
        ("--distribution-strategy", "--distribution_strategy"),
        "distribution",
        "How training is distributed.",
        values=("generic", "llm-training", "nemo", "NEMO"),
        default="generic",
        no_effect="a graph states its collectives, which stay where they are",
    ),
    Option(
        ("--llm-training",),
        "distribution",
        "The same as --distribution-strategy llm-training.",
        constant="llm-training",
        no_effect="a graph states its collectives, which stay where they are",
        origin="older clients",
    ),
    Option(
        ("--logical-nc-config", "-lnc", "--lnc"),
        "logical_cores",
        "Physical cores that share the graph. The default is NEURON_LOGICAL_NC_CONFIG, else 1 on "
        "every target (the vendor's is 2 on trn2). 2 is refused as NCC_EARG001 on trn1 and inf2.",
        values=("1", "2"),
    ),
    Option(
        ("--optlevel", "-O"),
        "level",
        "Effort of optimisation. From 2 on several plans are compiled where they differ, and the "
        "fastest by the timing model is taken.",
        values=("1", "2", "3"),
        default="2",
    ),
    Option(
        ("--enable-experimental-O1",),
        "level",
        "The same as --optlevel 1.",
        constant="1",
        deprecated="--optlevel 1",
    ),
    Option(
        ("--enable-mixed-precision-accumulation",),
        "accumulation",
        "Sums of narrow floats are accumulated in fp32 (the default).",
        constant=True,
        default=True,
    ),
    Option(
        ("--disable-mixed-precision-accumulation",),
        "accumulation",
        "Sums need not be accumulated in fp32.",
        constant=False,
        no_effect="the engines accumulate in fp32 at no cost, so that the permission is not used",
    ),
    Option(
        ("--enable-saturate-infinity",),
        "saturate",
        "Infinities become the largest numbers where the tensor engine of inf2 and trn1 transposes "
        "them: there they make other elements NaN. Later engines move them as they are.",
        constant=True,
    ),
    Option(
        ("--enable-fast-context-switch",),
        "context_switch",
        "Load constants late.",
        constant=True,
        no_effect="a program is loaded as a whole",
    ),
    Option(
        ("--enable-fast-loading-neuron-binaries",),
        "uncompressed",
        "Write the output without compression.",
        constant=True,
        no_effect="containers are never compressed",
    ),
    Option(
        ("--num-parallel-jobs",),
        "jobs",
        "Processes that compile.",
        deprecated="nothing",
        no_effect="one process compiles",
    ),
    Option(
        ("--logfile",),
        "logfile",
        "The file that gets the messages of all levels from info on (debug with --verbose debug).",
        default="log-neuron-cc.txt",
    ),
    Option(
        ("--output",),
        "output",
        "The program. It is written as a whole or not at all.",
        default="file.neff",
    ),
    Option(
        ("--verbose",),
        "verbose",
        "The least level of messages that are shown: debug and info on the standard output, the "
        "others on standard error. info has the time of each stage.",
        values=VERBOSITY,
        default="warning",
    ),
    Option(
        ("--report",),
        "report",
        "Write where the modelled time goes: HTML, or JSON where the name ends in .json. The graph "
        "is compiled again even where its program is kept.",
        origin="this compiler",
    ),
    Option(
        ("--pipeline",),
        "pipeline",
        "compile: everything. tensorize: stop after tile IR, and print it as NKI source. "
        "SaveTemps, behind one of these: write graph.hlo.txt and tile_ir.txt, and program.txt "
        "(assembly), to the current folder.",
        values=PIPELINE,
        default=("compile",),
        several=True,
        origin=_NKIPY,
    ),
    Option(
        ("--experimental-unsafe-fp8e4m3fn-as-fp8e4m3",),
        "fp8",
        "Compile f8e4m3fn for trn1 and trn2, too, which do not have it (else NCC_EVRF051).",
        constant=True,
        origin="EVRF051.rst",
    ),
    Option(
        ("--tensorizer-options",),
        "tensorizer",
        "--print-nki: write the tile IR as NKI source to nki.py in the current folder. Others have "
        "no effect: they steer stages that only the vendor's compiler has.",
        origin=_NKIPY,
    ),
    Option(
        ("--internal-tensorizer-opt-level",),
        "tensorizer_level",
        "Effort of optimisation.",
        no_effect=_ONE_RESULT,
        origin=_NKIPY,
    ),
    Option(
        ("--internal-hlo2tensorizer-options",),
        "reader",
        "--verify-hlo=false: the graph is not checked before it is compiled.",
        origin="SDK tutorials",
    ),
    Option(
        ("--internal-backend-options",),
        "backend",
        "Options of the vendor's back end.",
        no_effect=_DEBUGGING,
        origin="SDK tutorials",
    ),
    Option(
        ("--internal-compiler-debug",),
        "debugging",
        "Messages for the vendor's developers.",
        constant=True,
        no_effect=_DEBUGGING,
        origin="SDK tutorials",
    ),
    Option(
        ("--hbm-scratchpad-page-size",),
        "page",
        "Page size of scratch memory.",
        no_effect="scratch memory has no pages",
        origin="nki-library",
    ),
    Option(
        ("--disable-dge",),
        "static_descriptors",
        "Make DMA descriptors while compiling.",
        constant=True,
        no_effect="the kind of descriptors follows from the address",
        origin="SDK release notes",
    ),
    Option(
        ("--enable-internal-neff-wrapper",),
        "wrapper",
        "Wrap the program for a runtime.",
        constant=True,
        no_effect="the runtime here takes programs as they are",
        origin="zml",
    ),
    Option(
        ("--logfile-verbose",),
        "logfile_verbose",
        "The least level of messages in the log file.",
        values=VERBOSITY,
        origin="zml",
    ),
    Option(
        ("--no_cache",),
        "no_cache",
        "Neither look for the program among those kept, nor keep it.",
        constant=True,
        origin=_WRAPPER,
    ),
    Option(
        ("--cache_dir",),
        "cache",
        "The folder of programs that are kept, instead of NEURON_COMPILE_CACHE_URL.",
        origin=_WRAPPER,
    ),
    Option(
        ("--retry_failed_compilation",),
        "retry",
        "Compile again what failed before.",
        constant=True,
        no_effect="failures are not kept",
        origin=_WRAPPER,
    ),
)
"""Every option of `compile`, in the order of the page."""


class UsageError(Exception):
    """A command line that cannot be understood, in one sentence."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}")


def _add(parser: argparse.ArgumentParser, row: Option) -> None:
    given: dict[str, Any] = {"dest": row.place, "default": argparse.SUPPRESS}
    given["help"] = row.shown.replace("%", "%%")
    if row.constant is not None:
        parser.add_argument(*row.names, action="store_const", const=row.constant, **given)
        return
    given["metavar"] = "VALUE"
    if row.values:
        given["choices"] = row.values
        given["metavar"] = "{" + ",".join(row.values) + "}"
    if row.several:
        given["nargs"] = "+"
    parser.add_argument(*row.names, required=row.required, **given)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command."""
    top = _Parser(prog="neuronx-cc", description="Compile graphs for NeuronCores.")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    told = "Compile a graph: HLO as a proto or text, or StableHLO; the content says which."
    compiling = commands.add_parser("compile", help=told, description=told, allow_abbrev=False)
    compiling.add_argument("model", nargs="+", metavar="MODEL", help="The file with the graph.")
    for row in OPTIONS:
        _add(compiling, row)
    told = "List the operators that have a form on the device, as XlaBuilder spells them."
    listing = commands.add_parser("list-operators", help=told, description=told, allow_abbrev=False)
    listing.add_argument("--framework", choices=("XLA",), required=True, help="XLA")
    return top


_DEFAULTS = {row.place: row.default for row in reversed(OPTIONS)}


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The values of a command line; `used` are the rows of the options that it has.

    Raises UsageError; `--help` raises SystemExit as argparse does.
    """
    given = _model_apart(arguments)
    values = argparse.Namespace(**_DEFAULTS)
    parser().parse_args(given, values)
    values.used = [row for row in OPTIONS if any(_is_one(word, row.names) for word in given)]
    return values


def _is_one(word: str, names: tuple[str, ...]) -> bool:
    name, _, _ = word.partition("=")
    return name in names or any(
        len(short) == 2 and word.startswith(short) and not word.startswith("--") for short in names
    )


def _model_apart(arguments: Sequence[str]) -> list[str]:
    """The words with the model that follows the values of --pipeline in front of it."""
    words = list(arguments)
    for place in range(len(words) - 1, 0, -1):
        if words[place] != "--pipeline":
            continue
        end = place + 1
        while end < len(words) and words[end] in PIPELINE:
            end += 1
        if end < len(words) and not words[end].startswith("-"):
            words.insert(place, words.pop(end))
    return words
