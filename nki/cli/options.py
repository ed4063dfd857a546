"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nki import progress
from nki.cli.failure import Presentation
from nki.report import Report, print_report

if TYPE_CHECKING:
    import ast

Command = TypeVar("Command", bound=Callable[..., Any])

_JSON = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    help="Print JSON with stable keys, errors included, for programs.",
)
_TRACEBACK = click.option(
    "--traceback",
    is_flag=True,
    expose_value=False,
    help="When something fails, show the frames of nki itself too.",
)


def presented(command: Command) -> Command:
    """Add --json and --traceback. `nki.cli.application.run` reads them before click does, so
    that mistakes in the command line itself follow them too."""
    return _JSON(_TRACEBACK(command))


def show(context: click.Context, report: Report) -> None:
    """Print what a command found, as --json says."""
    presentation: Presentation = context.obj
    progress.close()
    print_report(report, presentation.as_json)


def _targets(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """What a shell completes: the names of targets."""
    from isa.target import TARGETS

    return [name for name in TARGETS if name.startswith(begun)]


def complete_kernel(context: click.Context, parameter: click.Parameter, begun: str) -> list[Any]:
    """What a shell completes: files, and behind FILE: the kernels of a Python file, which is read
    but not run."""
    import ast

    from click.shell_completion import CompletionItem

    file, colon, name = begun.rpartition(":")
    if not colon:
        return [CompletionItem(begun, type="file")]
    try:
        with open(file, encoding="utf-8") as source:
            body = ast.parse(source.read()).body
    except (OSError, SyntaxError, ValueError):
        return []
    kernels = [node.name for node in body if isinstance(node, ast.FunctionDef) and _is_kernel(node)]
    return [f"{file}:{kernel}" for kernel in kernels if kernel.startswith(name)]


def _is_kernel(function: ast.FunctionDef) -> bool:
    import ast

    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """Which kernel a command starts, as the command line says it: `kernel` is FILE:KERNEL or
    FILE.neff, the rest is what the options of the same names have."""

    kernel: str
    inputs: tuple[str, ...]
    arguments: tuple[str, ...]
    target: str | None
    cores: int
    symbols: tuple[str, ...] = ()
    transformations: tuple[str, ...] = ()
    seed: int = 0


def choosing(
    metavar: str, tensors: Callable[[Any], Any], *more: Callable[[Any], Any]
) -> Callable[[Callable[..., int]], Any]:
    """Adds a kernel as argument and the options that say what it is started with: for its `tensors`
    `inputs` or `shapes`, and `more` than every command has. The command gets its context and a
    `KernelChoice`, then its own options by name."""
    kernel = click.argument("kernel", metavar=metavar, shell_complete=complete_kernel)
    shared = (kernel, tensors, arguments, target, cores, *more)
    names = [field.name for field in fields(KernelChoice)]

    def decorate(command: Callable[..., int]) -> Any:
        @click.pass_context
        @wraps(command)
        def call(context: click.Context, **given: Any) -> int:
            choice = {name: given.pop(name) for name in names if name in given}
            return command(context, KernelChoice(**choice), **given)

        result: Any = call
        for option in reversed(shared):
            result = option(result)
        return result

    return decorate


target = click.option(
    "--target",
    shell_complete=_targets,
    metavar="NAME",
    help="What to compile for: trn1, trn2 or trn3 (and their other names). Default: "
    "NEURON_PLATFORM_TARGET_OVERRIDE, else trn3.",
)
cores = click.option(
    "--lnc",
    "cores",
    type=click.IntRange(1, 2),
    metavar="CORES",
    default=1,
    show_default=True,
    help="Physical cores of the logical core that the kernel runs on.",
)
inputs = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=SPEC",
    help="One tensor: a=normal(1024,1024):bfloat16 (also uniform, randint, onehot, zeros, ...), "
    "a=[[1,2],[3,4]]:int32, a=@file.npy, or b=2*a.T. Once for every tensor parameter.",
)
_shape = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=SPEC",
    help="One tensor's shape and dtype: a=(M,512):bfloat16; sizes are numbers or --symbol "
    "names. Once for every tensor parameter.",
)
_symbol = click.option(
    "--symbol",
    "symbols",
    multiple=True,
    metavar="NAME:LIMITS",
    help="A launch symbol for shapes: M:multiple_of=128,max=8192 (min= as well).",
)


def shapes(command: Command) -> Command:
    """Add --input for tensors without data, and --symbol."""
    return _shape(_symbol(command))


arguments = click.option(
    "--arg",
    "arguments",
    multiple=True,
    metavar="NAME=VALUE",
    help="A compile-time argument: a number, true, false, none, or text.",
)
transformations = click.option(
    "--transform",
    "transformations",
    multiple=True,
    metavar="NAME[:TENSOR][=NUMBER]",
    help="Let the compiler do what others do: reuse-loads, reuse-work, hoist, read-in-psum, "
    "squares-on-vector, balance-copies. Without, the kernel is compiled as it is written.",
)
seed = click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="NUMBER",
    default=0,
    show_default=True,
    help="Seed of random inputs.",
)
expect = click.option(
    "--expect",
    metavar="FUNCTION",
    help="A NumPy function that is called on the same inputs and must give the same outputs: "
    "its name in the kernel's file, or FILE:FUNCTION.",
)
tolerance = click.option(
    "--tolerance",
    type=click.FloatRange(min=0.0),
    metavar="NUMBER",
    help="Relative tolerance of --expect. Default: by the dtype of the output.",
)
