"""What an instruction may come after by `depends_on` (SDK nki.isa, NkiInstruction): the same in all
modes."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError

MODES = ("eager", "reference", "device")


def run(edge, mode):
    """`edge` gets the instructions ahead of a loop, of its last iteration, and behind it."""

    def kernel():
        first, second = (nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.sbuf) for _ in range(2))
        ahead = nisa.memset(first, 1.0)  # ahead
        inside = []

        def body(i):
            one = nisa.memset(second, 2.0)  # inside
            other = nisa.tensor_copy(first, second)  # last
            inside[:] = one, other
            edge("inside", ahead, (one, other), None)

        nl.fori_loop(0, nisa.register_alloc(3), body)
        behind = nisa.tensor_copy(first, second)  # behind
        edge("behind", ahead, inside, behind)
        out = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, first)
        return out

    return nki.simulate(nki.jit(kernel, platform_target="trn2"), mode=mode)()


def only(place, action):
    return lambda where, *instructions: where == place and action(*instructions)


ALLOWED = {
    "around": only("inside", lambda ahead, inside, behind: inside[-1].depends_on(ahead)),
    "same iteration": only("inside", lambda ahead, inside, _: inside[-1].depends_on(inside[-2])),
    "ahead": only("behind", lambda ahead, inside, behind: behind.depends_on(ahead, ahead)),
    "nothing": only("behind", lambda ahead, inside, behind: behind.depends_on()),
}

REFUSED = {
    # name: (edge, what the line of the error says)
    "out of the loop": (
        only("behind", lambda ahead, inside, behind: behind.depends_on(inside[-1])),
        "# behind",
    ),
    "itself": (
        only("inside", lambda ahead, inside, _: inside[-1].depends_on(inside[-1])),
        "# last",
    ),
    "a later one": (
        only("behind", lambda ahead, inside, behind: ahead.depends_on(behind)),
        "# ahead",
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ALLOWED)
def test_an_edge(name, mode):
    np.testing.assert_array_equal(run(ALLOWED[name], mode), np.full((4, 8), 2.0))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", REFUSED)
def test_an_edge_that_no_order_keeps(name, mode):
    edge, line = REFUSED[name]
    with pytest.raises(NeuronError) as caught:
        run(edge, mode)
    assert caught.value.code == "value-not-allowed"
    assert line in caught.value.location.text


@pytest.mark.parametrize("bounds", [(0, 2**31), (-(2**31) - 1, 0)])
def test_a_loop_counts_in_32_bits(bounds):
    def kernel():
        nl.fori_loop(*bounds, lambda i: None)

    for mode in MODES:
        with pytest.raises(NeuronError) as caught:
            nki.simulate(nki.jit(kernel), mode=mode)()
        assert caught.value.code == "value-not-allowed"
