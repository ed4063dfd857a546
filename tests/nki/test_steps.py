"""Lowering of tile IR that no tracer made."""

import pytest

from isa.enums import Engine, Memory
from isa.errors import NeuronError
from isa.operations import OPERATIONS
from isa.target import TARGETS
from nki.ir.nodes import Access, Op, Tensor
from nki.passes.analysis.steps import expand


def test_an_engine_left_open_is_refused():
    tile = Tensor(0, "tile", Memory.sbuf, "float32", (8, 4))
    view = Access(tile, "float32", (8, 4), (4, 1))
    op = Op(OPERATIONS["memset"], (view, 1.0, Engine.unknown))
    with pytest.raises(NeuronError) as error:
        expand([op], TARGETS["trn2"])
    assert error.value.code == "ir-invalid"
    assert "memset" in error.value.what
