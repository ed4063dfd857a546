"""Programs around tiles of which a part is loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import Builder, contiguous, hbm, sbuf

from isa.enums import Engine
from isa.errors import NeuronError
from simulator.execute import RunResult, run

E = Engine


P, F = 8, 6


class Kernel:
    """A program on one engine's stream around [8, 6] float32 tiles; tile 0 is loaded up to
    `columns` columns and `rows` rows of an all-ones input."""

    def __init__(self, rows: int = P, columns: int = F, engine: E = E.gpsimd) -> None:
        self.engine = engine
        self.b = Builder()
        self.b.tensor("a", "float32", (P, F), "input")
        self.tiles = 0
        self.source = self.tile(F)
        part = hbm(0, "float32", ((F, rows), (1, columns)))
        loaded = sbuf("float32", 0, rows, columns)
        loaded.dims = ((1, columns),)
        self.b.dma(self.engine, loaded, part)

    def tile(self, columns: int, partitions: int = P, dtype: str = "float32") -> Any:
        pattern = sbuf(dtype, 256 * self.tiles, partitions, columns)
        self.tiles += 1
        self.b.begin(self.engine, pattern)
        return pattern

    def add(self, row: Any, *values: Any) -> None:
        self.b.add(self.engine, row, *values)

    def store(self, pattern: Any, shape: tuple[int, ...] = (P, F)) -> None:
        out = self.b.tensor("out", pattern.dtype, shape, "output")
        self.b.dma(self.engine, hbm(out, pattern.dtype, contiguous(shape)), pattern)

    def run(self) -> RunResult:
        return run(self.b.finish(), [np.ones((P, F), np.float32)])

    def tainted(self) -> int:
        """How many output elements the error counts."""
        with pytest.raises(NeuronError) as caught:
            self.run()
        assert caught.value.code == "uninitialised-output"
        assert caught.value.location is not None
        return int(str(caught.value).split("Output out: ")[1].split()[0])
