"""`nki diff`: the first operation at which two ways of running a kernel differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nki.cli import options
from nki.cli.exit_codes import CHECK_FAILED, OK
from nki.report import Facts, Report, Section, Table

if TYPE_CHECKING:
    from nki.cli.launch import Launch
    from nki.difference import Difference, ModeComparison, Unequal


@click.command("diff")
@options.choosing("FILE:KERNEL", options.inputs, options.seed)
@click.option(
    "--modes",
    default="eager,device",
    show_default=True,
    metavar="MODE,MODE",
    help="Two of eager, reference, device (as in `nki run`, but on NumPy), native: the program of "
    "device in the native loop; and fp32: the reference with bfloat16 and fp8 tensors kept as "
    "float32, as NKI_PRECISE_FP=0 does.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0.0),
    metavar="ULPS",
    default=0.0,
    show_default=True,
    help="Units in the last place (of the coarser type) by which elements may differ.",
)
@options.presented
def diff_command(
    context: click.Context,
    choice: options.KernelChoice,
    modes: str,
    tolerance: float,
) -> int:
    """Run a kernel in two modes and show where their results part.

    Compares what every instruction of every operation writes, and shows the first one that differs
    in the kernel's order: its line, the tensor, the elements and how far they are apart. Modes
    eager, reference, device and native give the same bits. So a difference is a kernel whose Python
    code does something else when it is called again, or a defect of this program. Between device
    and fp32 it is where rounding to the tensors' data types begins to show.

    Examples:

    \b
      nki diff softmax.py:softmax --input 'a=normal(256,512):bfloat16'
      nki diff softmax.py:softmax --input 'a=normal(256,512):bfloat16' \\
          --modes device,fp32 --tolerance 4
    """
    from isa.errors import NeuronError
    from nki.cli.launch import prepare
    from nki.difference import MODES, compare_modes

    one, _, other = modes.partition(",")
    if one not in MODES or other not in MODES:
        raise NeuronError(
            "unknown-mode",
            f"--modes {modes} is no pair of {', '.join(MODES)}",
            hint="Name two, with a comma between them: --modes eager,device.",
        )
    launch = prepare(choice)
    if launch.kernel is None:
        raise NeuronError(
            "unknown-mode",
            f"{launch.reference.file} is compiled and runs in mode device only",
            hint="Name the kernel's Python file, FILE:KERNEL.",
        )
    call = launch.call()
    found = compare_modes(launch.kernel, call.args, call.kwargs, (one, other), tolerance)
    options.show(context, _report(launch, found, tolerance))
    return (OK if found.agrees else CHECK_FAILED).number


def _report(launch: Launch, found: ModeComparison, tolerance: float) -> Report:
    first = found.first
    data = {
        "kernel": launch.name,
        "modes": list(found.modes),
        "tolerance": tolerance,
        "agrees": found.agrees,
        "instructions": found.compared,
        "instructions_unequal": found.unequal,
        "first": None if first is None else _first_data(first),
        "outputs": {
            f"output{number}": _unequal_data(unequal) for number, unequal in found.outputs.items()
        },
    }
    summary = Facts.of(
        launch.name,
        modes=" and ".join(found.modes),
        instructions=f"{found.compared:,} compared, {found.unequal:,} not bit for bit the same",
        tolerance=f"{tolerance:g} units in the last place",
        result="no difference" if found.agrees else None,
    )
    sections: list[Section] = [summary]
    if first is not None:
        sections.append(_first_section(first, found.modes))
    if found.outputs:
        rows = [
            (f"output{number}", f"{u.elements:,}", u.first, *map(_shown, u.first_values), _far(u))
            for number, u in found.outputs.items()
        ]
        columns = ("output", ">elements", ">first", *(f">{m}" for m in found.modes), ">ulps")
        sections.append(Table.of("outputs that differ", columns, rows))
    return Report(data, sections)


def _first_section(first: Difference, modes: tuple[str, str]) -> Facts:
    unequal, place = first.unequal, first.location
    dtypes = " and ".join(dict.fromkeys(first.dtypes))
    times = f", execution {first.executed + 1}" if first.executed else ""

    def element(number: int, values: tuple[Any, Any]) -> str:
        pairs = ", ".join(f"{mode} {_shown(value)}" for mode, value in zip(modes, values))
        return f"{list(first.coordinates(number))}: {pairs}"

    return Facts.of(
        "first difference",
        operation=f"{first.operation} on core {first.core}{times}",
        line=f"{place.file}:{place.line}" if place is not None else None,
        code=place.text.strip() if place is not None else None,
        tensor=f"{first.tensor} ({first.operand}), {list(first.shape)} of {dtypes}",
        elements=f"{unequal.elements:,}",
        first_element=element(unequal.first, unequal.first_values),
        furthest_element=element(unequal.furthest, unequal.furthest_values),
        distance=f"{_far(unequal)} units in the last place",
    )


def _shown(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _far(unequal: Unequal) -> str:
    return f"{unequal.distance:,.4g}"


def _unequal_data(unequal: Unequal) -> dict[str, Any]:
    return {
        "elements": unequal.elements,
        "first": unequal.first,
        "first_values": list(unequal.first_values),
        "furthest": unequal.furthest,
        "furthest_values": list(unequal.furthest_values),
        "ulps": unequal.distance,
    }


def _first_data(first: Difference) -> dict[str, Any]:
    place = first.location
    return {
        "operation": first.operation,
        "operand": first.operand,
        "tensor": first.tensor,
        "dtypes": list(first.dtypes),
        "shape": list(first.shape),
        "core": first.core,
        "executed": first.executed,
        "file": None if place is None else place.file,
        "line": None if place is None else place.line,
        "first_index": list(first.coordinates(first.unequal.first)),
        "furthest_index": list(first.coordinates(first.unequal.furthest)),
        **_unequal_data(first.unequal),
    }
