"""Published latencies beside those of the timing model.

Run: python benchmarks/latency_accuracy.py [FACTS] [ROW...] [--as-written]

FACTS is a folder with published_latencies.csv and trn2_primitive_timings.csv, by default
../shared/facts beside the checkout. Rows are named by the beginning of their id. Kernels are those
of benchmarks/latency. Errors are signed, in percent of what was published; for percentages too.

Kernels are compiled with the transformations (`nki.transformations`) that the compiler of the
published runs made, where their counters say so; with --as-written as their authors wrote them.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from latency import instructions, primitives
from latency.absent import reason
from latency.cases import KERNELS, Case, cases
from latency.families import FITTED, family, without
from latency.measures import Figures, figures, kind, predicted

from simulator.timing.uncertainty import BOUND_ANYHOW, LEVEL, TABLE, Uncertainty

FACTS = Path(__file__).parents[2] / "shared" / "facts"
Errors = dict[tuple[str, str], list[float]]
Row = dict[str, Any]


def main() -> None:
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    as_written = "--as-written" in sys.argv[1:]
    folder = next((Path(a) for a in arguments if Path(a).is_dir()), FACTS)
    chosen = tuple(a for a in arguments if not Path(a).is_dir())
    path = folder / "published_latencies.csv"
    if not path.exists():
        print(f"There is no {path}: nothing to compare with.")
        return
    rows = [row for row in _read(path) if row["id"].startswith(chosen or ("",))]
    found = _kernels(rows, as_written)
    single = _instructions(rows)
    if not chosen:
        _laws(_read(folder / "trn2_primitive_timings.csv"), single)
    print()
    _summary(found.errors | {("trn2", "isolated"): single})
    _without_own_rows(rows, found)
    _without_families(rows)
    _uncertainties(found)
    print()
    for row in rows:
        if row["id"] not in KERNELS and row["id"] not in instructions.ROWS:
            print(f"{row['id']:7}not reproduced: {reason(row)}")


def _read(path: Path) -> list[Row]:
    with path.open() as file:
        return list(csv.DictReader(file))


class _Found:
    """Errors of kernels: by target and kind, and of totals by kernel and by what is busiest."""

    def __init__(self) -> None:
        self.errors: Errors = defaultdict(list)
        self.totals: dict[str, list[float]] = defaultdict(list)
        self.alike: dict[tuple[str, str], list[float]] = defaultdict(list)


def _kernels(rows: list[Row], as_written: bool) -> _Found:
    """Print kernels' rows."""
    known, done, found = cases(), dict[str, Figures](), _Found()
    print(f"{'row':7}{'kernel':27}{'metric':36}{'published':>11}{'model':>11}{'error %':>9}  bound")
    for row in rows:
        name = KERNELS.get(row["id"])
        if name is None:
            continue
        case = known[name].as_written() if as_written else known[name]
        if name not in done:
            done[name] = figures(case)
        value, published = predicted(row, case, done[name]), float(row["value"])
        text = f"{row['id']:7}{name:27}{row['metric'][:34]:36}{published:9.2f} {row['unit']:3}"
        shown = " " * 9
        if published:
            error = 100 * (value / published - 1)
            found.errors[case.target, kind(row)].append(error)
            if kind(row) == "total":
                found.totals[name].append(error)
                found.alike[case.target, done[name].bound].append(error)
            shown = f"{error:+9.1f}"
        print(f"{text}{value:9.2f}{shown}  {done[name].bound}", flush=True)
    return found


def _instructions(rows: list[Row]) -> list[float]:
    """Print the rows of one instruction or transfer, on trn2; their errors."""
    errors = []
    for row in rows:
        if row["id"] in instructions.ROWS:
            value, published = instructions.ROWS[row["id"]](), float(row["value"])
            errors.append(100 * (value / published - 1))
            name = f"{row['id']:7}{row['kernel'][:26]:27}{row['metric'][:34]:36}"
            print(f"{name}{published:11.4g}{value:11.4g}{errors[-1]:+9.1f}  {row['unit']}")
    return errors


def _laws(rows: list[Row], errors: list[float]) -> None:
    """Print the measured laws, each at the sizes that are compared, and add to the errors."""
    print(f"\n{'instruction, ns at elements a partition':51}: published, model, error %")
    shown: dict[int, list[str]] = defaultdict(list)
    for row, n, published, value in primitives.compared(rows):
        errors.append(100 * (value / published - 1))
        text = f"{n}: {published:.0f}, {value:.0f}, {errors[-1]:+.1f}"
        shown[rows.index(row)].append(text)
    for index, row in enumerate(rows):
        types = f"{row['in_dtype']}>{row['out_dtype']}"
        places = f"{row['src_mem']}>{row['dst_mem']}"
        name = f"{row['op'][:26]:27}{row['engine'][:8]:9}{types} {places} {row['func']}"
        print(f"{name:58} {'; '.join(shown[index]) or primitives.reason(row)}")


def _summary(errors: Errors) -> None:
    for (target, what), found in sorted(errors.items()):
        if found:
            print(f"{target} {what}: {len(found)} rows, {_spread(found)}")


def _spread(errors: list[float]) -> str:
    middle, high = np.percentile(np.abs(errors), (50, 90))
    return f"median {middle:.1f} %, 90th percentile {high:.1f} %"


def _without_own_rows(rows: list[Row], found: _Found) -> None:
    """Print totals with every kernel predicted without what its own rows contributed."""
    known, done = cases(), dict[str, Figures]()
    errors: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        name = KERNELS.get(row["id"])
        if name is None or kind(row) != "total" or not float(row["value"]):
            continue
        case = known[name]
        if not case.own and not case.fitted:
            continue
        left = case.left_out()
        if name not in done:
            done[name] = figures(left)
        error = 100 * (predicted(row, left, done[name]) / float(row["value"]) - 1)
        errors[name].append(error)
        print(f"\nwithout its own rows: {row['id']} {name} {error:+.1f} %", end="")
    print()
    by_target: Errors = defaultdict(list)
    for name, own in found.totals.items():
        by_target[known[name].target, "total, each kernel left out"] += errors.get(name, own)
    _summary(by_target)


def _without_families(rows: list[Row]) -> None:
    """Print totals with every kernel predicted without what rows of its source contributed."""
    known, done = cases(), dict[str, Figures]()
    errors: Errors = defaultdict(list)
    for row in rows:
        name = KERNELS.get(row["id"])
        if name is None or kind(row) != "total" or not float(row["value"]):
            continue
        case = known[name]
        left = _of_other_families(case, family(row["id"]))
        if name not in done:
            done[name] = figures(left)
        error = 100 * (predicted(row, left, done[name]) / float(row["value"]) - 1)
        errors[case.target, "total, each family left out"].append(error)
    for one in FITTED:
        print(f"{one.target} {one.figure} rests on {one.family} alone; without: {one.because}")
    _summary(errors)


def _of_other_families(case: Case, own: str) -> Case:
    """A kernel as rows of other families alone would have it."""
    return replace(case, figures=without(case.target, own), moved=() if case.own else case.moved)


def _uncertainties(found: _Found) -> None:
    """Print what the errors of kernels bound alike are, beside the table that profiles use."""
    print(f"\nerror of totals that {LEVEL} % of the rows bound alike stay within")
    for key, errors in sorted(found.alike.items()):
        print(f"{key[0]} {key[1]}: {_level(errors, TABLE.get(key))}")
    for target, stated in BOUND_ANYHOW.items():
        every = [e for key, some in found.alike.items() if key[0] == target for e in some]
        if every:
            print(f"{target}, all rows: {_level(every, stated)}")


def _level(errors: list[float], stated: Uncertainty | None) -> str:
    """The error that `LEVEL` percent of errors stay within, beside the stated one."""
    within = "" if stated is None else f"; stated {stated.percent:g} % of {stated.rows}"
    high = np.percentile(np.abs(errors), LEVEL, method="higher")
    return f"{len(errors)} rows, {high:.1f} %{within}"


if __name__ == "__main__":
    main()
