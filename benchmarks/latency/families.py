"""What each family of published rows contributed to the timing model, and what would stand in its
place without the family.

A family is the rows of one source, the letters of their ids. A figure that one family alone decides
falls back to what the documents say, or to the other generation. Figures that are not here have no
family's kernels behind them: they are documented, or measured by isolated instructions and
transfers.
"""

from __future__ import annotations

from typing import NamedTuple


class Fitted(NamedTuple):
    """A figure of a target that rows of kernels decided: its value without `family`, and why."""

    target: str
    family: str
    figure: str
    without: float
    because: str


FITTED = (
    Fitted("trn2", "AG", "dma_short_run_fraction", 0.5, "KO004 and DM010 give the same"),
    Fitted("trn2", "NA", "dma_trigger_static_ns", 600.0, "documented (DGE): about 600 ns"),
    Fitted("trn1", "NB", "tile_loads_hidden", 1, "as on trn2 (AG018, KO008)"),
    Fitted("trn1", "NB", "reciprocal_cycles", 8.0, "documented (COSTS): 8 cycles an element"),
)


def family(row: str) -> str:
    """The family of a row, from its id."""
    return row.rstrip("0123456789")


def without(target: str, name: str) -> dict[str, float]:
    """The figures of a target that are others without a family."""
    return {one.figure: one.without for one in FITTED if (one.target, one.family) == (target, name)}
