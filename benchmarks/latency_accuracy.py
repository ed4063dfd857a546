"""Published latencies beside those of the timing model.

Run: python benchmarks/latency_accuracy.py [FACTS] [ROW...]

FACTS is a folder with published_latencies.csv, by default ../shared/facts beside the checkout. Rows
are named by the beginning of their id. Kernels are those of benchmarks/latency. Errors are signed,
in percent of what was published; for percentages too.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from latency.absent import reason
from latency.cases import KERNELS, cases
from latency.measures import Figures, figures, kind, predicted

FACTS = Path(__file__).parents[2] / "shared" / "facts"


def main() -> None:
    arguments = sys.argv[1:]
    folder = next((Path(a) for a in arguments if Path(a).is_dir()), FACTS)
    chosen = tuple(a for a in arguments if not Path(a).is_dir())
    path = folder / "published_latencies.csv"
    if not path.exists():
        print(f"There is no {path}: nothing to compare with.")
        return
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if row["id"].startswith(chosen or ("",))]
    known = cases()
    done: dict[str, Figures] = {}
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    print(f"{'row':7}{'kernel':27}{'metric':36}{'published':>11}{'model':>11}{'error %':>9}  bound")
    for row in rows:
        name = KERNELS.get(row["id"])
        if name is None:
            continue
        case = known[name]
        if name not in done:
            done[name] = figures(case)
        value, published = predicted(row, case, done[name]), float(row["value"])
        text = f"{row['id']:7}{name:27}{row['metric'][:34]:36}{published:9.2f} {row['unit']:3}"
        if published:
            error = 100 * (value / published - 1)
            errors[case.target, kind(row)].append(error)
            print(f"{text}{value:9.2f}{error:+9.1f}  {done[name].bound}", flush=True)
        else:
            print(f"{text}{value:9.2f}{'':9}  {done[name].bound}", flush=True)
    print()
    for (target, what), found in sorted(errors.items()):
        middle, high = np.percentile(np.abs(found), (50, 90))
        print(f"{target} {what}: {len(found)} rows, ", end="")
        print(f"median {middle:.1f} %, 90th percentile {high:.1f} %")
    print()
    for row in rows:
        if row["id"] not in KERNELS:
            print(f"{row['id']:7}not reproduced: {reason(row)}")


if __name__ == "__main__":
    main()
