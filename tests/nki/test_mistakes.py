"""The mistakes of `mistakes.py`: line, code and way out, in every mode, at once and in a helper."""

import warnings

import numpy as np
import pytest
from mistakes import INPUTS, MISTAKES

import nki


def message(kernel, mistake, mode):
    """The error, caught and printed as harnesses do it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            nki.simulate(nki.jit(kernel, target=mistake.target), mode=mode)(*map(np.copy, INPUTS))
        except Exception as error:
            return error, str(error)
    raise AssertionError(f"nothing is wrong in mode {mode}")


def line_of(kernel):
    """The line with `# here`."""
    with open(kernel.__code__.co_filename) as file:
        lines = file.read().splitlines()
    first = kernel.__code__.co_firstlineno
    return next(n for n, line in enumerate(lines[first - 1 :], first) if "# here" in line)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_explained_at_its_line(name):
    mistake = MISTAKES[name]
    place = f"{mistake.kernel.__code__.co_filename}:{line_of(mistake.kernel)} in {name}"
    for mode in mistake.modes:
        error, text = message(mistake.kernel, mistake, mode)
        assert isinstance(error, nki.NeuronError), error
        assert (mode, error.code) == (mode, mistake.code), text
        assert place in text.replace("\n", " ")
        assert mistake.way_out in error.hint and error.hint and error.why


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_helper_names_the_caller(name):
    mistake = MISTAKES[name]

    def kernel(a, b, rows):
        return mistake.kernel(a, b, rows)

    caller = f"{__file__}:{kernel.__code__.co_firstlineno + 1} in kernel"
    for mode in mistake.modes:
        error, text = message(kernel, mistake, mode)
        assert (mode, error.code) == (mode, mistake.code), text
        assert caller in text, text


def test_the_table_is_long_and_covers_what_kernels_do_wrong():
    assert len(MISTAKES) >= 60
