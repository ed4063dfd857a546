"""`nki.sweep`: the predicted time of a kernel for every point of a grid of arguments."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isa.errors import NeuronError
from isa.sections import Table, html, plain_text
from nki.errors import user_frames
from nki.kernel import as_kernel
from nki.tuning.measure import Measurement
from nki.tuning.parallel import measure_all
from simulator.profile.picture import figure_class

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Grid = Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]]
"""Values by parameter, all combinations of which are settings, or the settings themselves."""


@dataclass(frozen=True)
class Sweep:
    """Measurements in the order of the grid. Text and HTML have the fastest first, then those that
    could not be compiled, with the reason.

    >>> times = {128: 900.0, 256: 700.0}
    >>> found = Sweep([Measurement("add", "trn2", {"rows": n}, t) for n, t in times.items()])
    >>> found.best.setting
    {'rows': 256}
    """

    measurements: list[Measurement]

    @property
    def ranked(self) -> list[Measurement]:
        """Those that could be timed, fastest first; of equal ones, in the order of the grid."""
        timed = (one for one in self.measurements if not one.error)
        return sorted(timed, key=lambda one: one.total_ns)

    @property
    def best(self) -> Measurement:
        """The fastest. Raises NeuronError value-not-allowed where no setting could be timed."""
        ranked = self.ranked
        if not ranked:
            reasons = "; ".join(dict.fromkeys(one.error for one in self.measurements))
            raise NeuronError("value-not-allowed", f"No setting could be compiled: {reasons}")
        return ranked[0]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data for JSON."""
        return {"measurements": [one.to_dict() for one in self.measurements]}

    def table(self) -> Table:
        """A row for each setting."""
        names = list(dict.fromkeys(name for one in self.measurements for name in one.setting))
        ranked = self.ranked
        rows = []
        for one in [*ranked, *(m for m in self.measurements if m.error)]:
            times = ("", "", "")
            if not one.error:
                slower = one.total_ns / ranked[0].total_ns if ranked[0].total_ns else 1.0
                times = (f"{one.total_us:,.2f}", f"{slower:.2f}", f"{one.instructions:,}")
            values = (str(one.setting.get(name, "")) for name in names)
            rows.append((*values, *times, one.error))
        columns = (*names, ">us", ">of best", ">instructions", "problem")
        if not any(one.error for one in self.measurements):
            columns, rows = columns[:-1], [row[:-1] for row in rows]
        kernel = f"{self.measurements[0].kernel} on {self.measurements[0].target}"
        return Table.of(f"{kernel}, predicted", columns, rows)

    def text(self) -> str:
        """The table as plain text."""
        return plain_text([self.table()])

    def _repr_html_(self) -> str:
        return html([self.table()])

    def plot(self) -> Figure:
        """A matplotlib figure: time by setting, fastest first (needs the extra viz)."""

        return bars(self.ranked)


@user_frames
def sweep(
    kernel: Any,
    grid: Grid,
    *,
    target: str | None = None,
    executor: Executor | None = None,
    processes: int | None = None,
) -> Callable[..., Sweep]:
    """A callable that predicts the time of the kernel for every setting of `grid`: values by
    parameter, of which all combinations are tried, or a list of settings.

    Inputs are arrays or `TensorSpec`s. Settings are measured in `processes` processes (as many as
    there are CPUs), or by `executor`, any of `concurrent.futures`. Times are kept by content: what
    was timed before is not timed again. A setting that cannot be compiled is in the table with its
    reason. Raises missing-argument for a grid without settings.

    >>> import nki, nki.language as nl, nki.isa as nisa
    >>> @nki.jit
    ... def copy(a, pieces):
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     for columns in range(0, a.shape[1], a.shape[1] // pieces):
    ...         part = nl.ds(columns, a.shape[1] // pieces)
    ...         nisa.dma_copy(dst=out[:, part], src=a[:, part])
    ...     return out
    >>> spec = nki.TensorSpec((128, 512), nl.float32)
    >>> found = nki.sweep(copy, {"pieces": [16, 1]}, target="trn2", processes=1)(spec)
    >>> found.best.setting, len(found.measurements)
    ({'pieces': 1}, 2)
    """
    launched, settings = as_kernel(kernel).on(target), settings_of(grid)

    @user_frames
    def swept(*args: Any, **kwargs: Any) -> Sweep:
        return Sweep(measure_all((launched, args, kwargs), settings, executor, processes))

    return swept


def settings_of(grid: Grid) -> Sequence[dict[str, Any]]:
    """The settings of a grid, the last parameter changing fastest. Raises missing-argument,
    value-not-allowed.

    >>> settings_of({"m": [1, 2], "n": [3]})
    [{'m': 1, 'n': 3}, {'m': 2, 'n': 3}]
    """
    try:
        if isinstance(grid, Mapping):
            combinations = itertools.product(*(list(values) for values in grid.values()))
            found = [dict(zip(grid, values)) for values in combinations]
        else:
            found = [dict(setting) for setting in grid]
    except (TypeError, ValueError) as error:
        raise NeuronError(
            "value-not-allowed",
            f"the grid is {grid!r:.60}: {error}",
            why="A grid is a dict with a list of values for each parameter, or a list of dicts.",
            hint='For example {"rows": [64, 128]}.',
        ) from None
    if not found:
        raise NeuronError(
            "missing-argument",
            "The grid has no settings.",
            why="A parameter without values has no combination with the others.",
            hint="Give at least one value for each parameter.",
        )
    return found


_LABELLED = 64
"""Settings that are named at the axis; of more, only the places are drawn."""


def bars(measurements: Sequence[Measurement]) -> Figure:
    """A bar for each measurement, in their order. Raises not-supported without matplotlib."""
    figure = figure_class()(figsize=(9, 1.2 + 0.22 * min(len(measurements), 64)))
    axes = figure.add_subplot()
    axes.barh(range(len(measurements)), [one.total_us for one in measurements])
    axes.invert_yaxis()
    axes.set_xlabel("us (predicted)")
    if measurements:
        axes.set_title(f"{measurements[0].kernel} on {measurements[0].target}")
    labels = [", ".join(f"{n}={v}" for n, v in one.setting.items()) for one in measurements]
    if len(labels) <= _LABELLED:
        axes.set_yticks(range(len(labels)), labels, fontsize=7)
    figure.set_layout_engine("constrained")
    return figure
