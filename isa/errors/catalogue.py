"""The error catalogue: a row for each kind of error.

A code is a short slug (`wrong-memory`); `CATALOGUE` maps it to its number, title and rule.
"""

from __future__ import annotations

from isa.errors.entry import CatalogueEntry
from isa.errors.graphs import GRAPH_ERRORS
from isa.errors.kernels import KERNEL_ERRORS
from isa.errors.programs import PROGRAM_ERRORS

CATALOGUE: dict[str, CatalogueEntry] = {**KERNEL_ERRORS, **PROGRAM_ERRORS, **GRAPH_ERRORS}
