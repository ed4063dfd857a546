"""Which of Python's exceptions the documents name for an error, so that programs can catch it."""

import numpy as np
import pytest
from limits import empty, refused, tile

import nki
import nki.isa as nisa
import nki.language as nl

SIMULATOR = "nki/guides/nki_simulator.rst"
LOOPS = "nki/deep-dives/nki-dynamic-loops.rst"
REGISTERS = "nki/api/nki/isa/__init__.py"
NOTES = "release-notes/components/nki.rst"
MIGRATION = "nki/migration/index.rst"


def register():
    return nisa.register_alloc(2)


def loop(step, body=lambda i: None):
    for i in nl.dynamic_range(0, 8, step):
        tile(4, 4)
        body(i)


DOCUMENTED = {
    # page and what it says: the exception, the call
    (SIMULATOR, "tile of 256 partitions"): (AssertionError, lambda: empty(256, 512)),
    (LOOPS, "step in a register"): (AssertionError, lambda: loop(register())),
    (NOTES, "write to the variable of a loop"): (
        AssertionError,
        lambda: loop(1, lambda i: nisa.register_move(i, 3)),
    ),
    (MIGRATION, "rank of a transpose by DMA"): (
        AssertionError,
        lambda: nisa.dma_transpose(empty(16, 1, 16), tile(16, 1, 1, 16), axes=(3, 1, 2, 0)),
    ),
    (MIGRATION, "elements of a reshape"): (AssertionError, lambda: tile(4, 6).reshape((4, 5))),
    (REGISTERS, "if on a register"): (TypeError, lambda: 1 if register() else 2),
    (REGISTERS, "comparison of a register"): (TypeError, lambda: register() == 0),
    (REGISTERS, "int of a register"): (TypeError, lambda: int(register())),
    (REGISTERS, "range of a register"): (TypeError, lambda: range(register())),
}


@pytest.mark.parametrize("place", DOCUMENTED, ids=lambda place: place[1].replace(" ", "-"))
def test_the_exception_that_a_page_names(place):
    exception, call = DOCUMENTED[place]
    assert isinstance(refused(call, "trn2"), exception)


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_it_ends_at_the_line_of_the_kernel(mode):
    """The simulator guide's example: an AssertionError, which the catalogue explains."""

    @nki.jit
    def bad_kernel(a_ptr):
        nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.sbuf)

    with pytest.raises(AssertionError, match="256") as caught:
        nki.simulate(bad_kernel, mode=mode)(np.zeros((4, 4), np.float32))
    assert caught.traceback[-1].name == "bad_kernel"
    assert "try: " in caught.value.__notes__[0]
