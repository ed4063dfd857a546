"""Which of Python's exceptions the documents name for an error, so that programs can catch it."""

import numpy as np
import pytest
from limits import empty, refused, tile

import nki
import nki.isa as nisa
import nki.language as nl

SIMULATOR = "nki/guides/nki_simulator.rst"
LOOPS = "nki/deep-dives/nki-dynamic-loops.rst"
PATTERNS = "nki/deep-dives/nki-aps.rst"
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
    (PATTERNS, "pairs that stand alone"): (AssertionError, lambda: tile(4, 8).ap([8, 4], [1, 8])),
    (MIGRATION, "value of the body of a loop"): (
        AssertionError,
        lambda: nl.fori_loop(0, 4, lambda i: (nisa.memset(empty(4, 4), 0), i)),
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
    assert "try: " in str(caught.value) and "why: " in caught.value.__notes__[0]


def test_a_body_of_one_call_is_no_value():
    def kernel(a):
        data = nl.load(a)
        nl.fori_loop(0, 3, lambda i: nisa.tensor_scalar(data, data, nl.add, 1.0))
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, data)
        return out

    np.testing.assert_array_equal(nki.jit(kernel)(np.zeros((2, 2), np.float32)), np.full((2, 2), 3))


def test_a_loop_in_a_block_without_reordering_is_called_what_it_is():
    def body():
        with nl.no_reorder():
            nl.fori_loop(0, 3, lambda i: None)

    error = refused(body, "trn2")
    assert error.what == "a loop on the device inside nl.no_reorder()"


@pytest.mark.parametrize("dtype", [np.uint8, np.dtype("uint8"), "uint8", nl.uint8])
def test_bits_are_seen_as_any_name_of_a_data_type(dtype):
    def body():
        view = tile(4, 6).view(dtype)
        assert view.shape == (4, 24) and view.dtype == nl.uint8
        assert tile(4, 6).ap([[24, 4], [1, 24]], dtype=dtype).dtype == nl.uint8

    nki.jit(lambda: body() and None).trace()
