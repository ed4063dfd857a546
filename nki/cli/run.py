"""`nki run`: run a kernel or a container on generated or given inputs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from nki.cli import options
from nki.cli.exit_codes import CHECK_FAILED, OK
from nki.report import Facts, Report, Section, Table

if TYPE_CHECKING:
    from nki.cli.launch import Launch
    from nki.expected import OutputComparison

_FIRST = 4
"""How many values of an output are shown."""


@click.command("run")
@options.choosing("FILE:KERNEL|FILE.neff", options.inputs, options.transformations, options.seed)
@click.option(
    "--mode",
    default="device",
    show_default=True,
    metavar="MODE",
    help="device (compile, run the program), reference (run the tile IR) or eager (run every "
    "operation as its line of Python executes). All give the same bits.",
)
@options.expect
@options.tolerance
@click.option(
    "--save-outputs",
    "folder",
    metavar="DIR",
    help="Write every output as DIR/output0.npy and so on.",
)
@options.presented
def run_command(
    context: click.Context,
    choice: options.KernelChoice,
    mode: str,
    expect: str | None,
    tolerance: float | None,
    folder: str | None,
) -> int:
    """Run a kernel and show its outputs.

    Examples:

    \b
      nki run softmax.py:softmax --input 'a=normal(256,512):float32' --expect softmax_numpy
      nki run k.neff --input 'a=@a.npy' --save-outputs results
    """
    from nki.cli.launch import changed_tensors, copies, load_expected, prepare
    from nki.cli.output_files import check_folder_writable, save_arrays
    from nki.expected import as_tuple
    from nki.kernel import simulate
    from nki.settings import MODES

    check_folder_writable(folder)
    if mode not in MODES:
        from isa.errors import NeuronError

        raise NeuronError("unknown-mode", f"mode {mode!r} is none of {', '.join(MODES)}")
    launch = prepare(choice)
    function = load_expected(launch, expect)
    before = copies(launch.tensors)
    if launch.compiled is not None:
        _only_device(mode, launch)
        returned = launch.compiled(*launch.tensors.values())
    else:
        call = launch.call()
        returned = simulate(launch.kernel, mode=mode)(*call.args, **call.kwargs)
    outputs = as_tuple(returned)
    updated = changed_tensors(launch, before)
    comparisons = compare_outputs(function, launch, before, outputs, updated, tolerance)
    named = {f"output{number}": output for number, output in enumerate(outputs)} | updated
    saved = save_arrays(folder, named) if folder is not None else []
    options.show(context, _report(launch, mode, choice.seed, named, comparisons, saved))
    failed = comparisons is not None and not all(c.agrees for c in comparisons)
    return (CHECK_FAILED if failed else OK).number


def _only_device(mode: str, launch: Launch) -> None:
    if mode != "device":
        from isa.errors import NeuronError

        raise NeuronError(
            "unknown-mode",
            f"{launch.reference.file} is compiled and runs in mode device, not {mode}",
            hint=f"For mode {mode} name the kernel's Python file, FILE:KERNEL.",
        )


def compare_outputs(
    function: Any,
    launch: Launch,
    before: dict[str, Any],
    outputs: tuple[Any, ...],
    updated: dict[str, Any],
    tolerance: float | None,
) -> list[OutputComparison] | None:
    """The outputs (or, of a kernel without any, the inputs it updated) against the reference."""
    if function is None:
        return None
    from nki.cli.launch import copies
    from nki.expected import as_tuple, compare_all, expected_outputs

    expected = as_tuple(expected_outputs(function, copies(before), launch.values))
    return compare_all(outputs or tuple(updated.values()), expected, tolerance)


def _report(
    launch: Launch,
    mode: str,
    seed: int,
    named: dict[str, Any],
    comparisons: list[OutputComparison] | None,
    saved: list[str],
) -> Report:
    target, cores = _where(launch)
    outputs = [describe_array(name, array) for name, array in named.items()]
    data = {
        "kernel": launch.name,
        "target": target,
        "lnc": cores,
        "mode": mode,
        "seed": seed,
        "inputs": launch.inputs_data(),
        "outputs": outputs,
        "comparison": None if comparisons is None else [c.data() for c in comparisons],
        "saved": saved,
    }
    head = Facts.of("", kernel=launch.name, target=_target_text(target, cores), mode=mode)
    sections: list[Section] = [head, inputs_table(launch), outputs_table(outputs)]
    if comparisons is not None:
        sections.append(comparison_table(comparisons, list(named)))
    if saved:
        sections.append("\n".join(f"wrote {path}" for path in saved))
    return Report(data, sections)


def _where(launch: Launch) -> tuple[str, int]:
    """Target name and number of cores of a launch."""
    if launch.compiled is not None:
        return launch.compiled.target, len(launch.compiled.program.cores)
    assert launch.kernel is not None
    from nki.settings import target

    return target(launch.kernel.target).name, launch.kernel.cores


def _target_text(target: str, cores: int) -> str:
    return target if cores == 1 else f"{target}, {cores} cores"


def inputs_table(launch: Launch) -> Table:
    """The inputs: name, shape, dtype, where the values come from."""
    rows = [(i["name"], i["shape"], i["dtype"], i["source"]) for i in launch.inputs_data()]
    return Table.of("inputs", ("name", "shape", "dtype", "values"), rows)


def describe_array(name: str, array: Any) -> dict[str, Any]:
    """Shape, dtype, extremes, mean and first values of an output."""
    import numpy as np

    from isa.dtypes import normalise

    values = array.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        summary = {
            "minimum": float(values.min()) if values.size else None,
            "maximum": float(values.max()) if values.size else None,
            "mean": float(values.mean()) if values.size else None,
        }
    return {
        "name": name,
        "shape": list(array.shape),
        "dtype": normalise(array.dtype),
        **summary,
        "first": values.reshape(-1)[:_FIRST].tolist(),
    }


def outputs_table(outputs: list[dict[str, Any]]) -> Table:
    """The outputs of `describe_array`, a row each."""
    rows = [
        (
            o["name"],
            o["shape"],
            o["dtype"],
            *(_number(o[key]) for key in ("minimum", "maximum", "mean")),
            " ".join(map(_number, o["first"])) + " ..." * (math.prod(o["shape"]) > _FIRST),
        )
        for o in outputs
    ]
    return Table.of("outputs", ("name", "shape", "dtype", ">min", ">max", ">mean", "first"), rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def comparison_table(comparisons: list[OutputComparison], names: list[str]) -> Table:
    """The comparison of the outputs `names`, with the bound that it used."""
    from nki.expected import BOUND

    rows = []
    for number, c in enumerate(comparisons):
        verdict = "agrees" if c.agrees else c.problem or f"{c.wrong:,} outside, worst {c.worst}"
        errors = ("", "") if c.problem else (f"{c.absolute:.3g}", f"{c.relative:.3g}")
        name = names[number] if number < len(names) else f"output{number}"
        rows.append((name, *errors, f"{c.tolerance:.3g}", verdict))
    columns = ("name", ">max abs error", ">max rel error", ">tolerance", "verdict")
    return Table.of(f"expected ({BOUND})", columns, rows)
