"""A sweep as a picture (matplotlib, the extra `viz`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nki.tuning.measure import Measurement
from simulator.profile.picture import figure_class

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
