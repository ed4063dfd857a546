"""`target=` of every entry point, and keywords that none of them has."""

import functools

import click
import numpy as np
import pytest

import nki
import nki.language as nl
from nki.cli.application import COMMANDS

A = np.ones((2, 3), np.float32)


def copied(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a))
    return out


def on_trn1(a):
    """What trn1 refuses, and the others do not: it tells the target."""
    nl.load(a, dtype=nl.float8_e4m3fn)
    return a


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_every_entry_point_takes_a_target(mode):
    for run in (
        nki.simulate(on_trn1, target="trn1", mode=mode),
        nki.simulate(nki.jit(on_trn1, target="trn1"), mode=mode),
        nki.simulate(nki.jit(target="trn1")(on_trn1), mode=mode),
        nki.simulate(nki.jit(nki.jit(on_trn1), target="trn1"), mode=mode),
        nki.simulate(nki.jit(on_trn1, platform_target="inf2"), mode=mode),
        nki.profile(on_trn1, target="trn1"),
        functools.partial(nki.compile, on_trn1, target="trn1"),
    ):
        with pytest.raises(nki.NeuronError, match="trn1"):
            run(A)


def test_the_profile_is_of_the_target():
    for kernel, target, expected in (
        (nki.jit(copied, target="trn1"), None, "trn1"),
        (nki.jit(copied), "gen3", "trn2"),
        (nki.jit(copied, target="trn1"), "trn2", "trn2"),
        (copied, None, "trn3"),
    ):
        outputs, found = nki.profile(kernel, target=target)(A)
        assert found.target == expected and np.array_equal(outputs, A)


def test_keywords_that_nobody_has():
    with pytest.raises(nki.NeuronError, match="unknown-argument") as caught:
        nki.jit(copied, taget="trn1")
    assert caught.value.hint.startswith("Did you mean target=?")
    assert "nki.jit(copied, taget" in caught.value.location.text
    with pytest.raises(TypeError, match="'grid'"):
        nki.jit(grid=(1,))(copied)
    for run in (nki.simulate, nki.profile):
        with pytest.raises(nki.NeuronError, match="unknown-argument") as caught:
            run(copied, taget="trn1")
        assert caught.value.hint.startswith("Did you mean target=?")
    with pytest.raises(nki.NeuronError, match="unknown-argument") as caught:
        nki.compile(copied, A, taget="trn1")
    assert "a, taget" not in str(caught.value) and "taget" in str(caught.value)


def test_two_names_of_one_target_and_wrong_ones():
    with pytest.raises(nki.NeuronError, match="value-not-allowed"):
        nki.jit(copied, target="trn1", platform_target="trn2")
    for run in (nki.jit, nki.simulate, nki.profile):
        with pytest.raises(nki.NeuronError, match="unknown-target"):
            run(copied, target="trn9")


def test_options_of_the_vendors_tools_are_taken():
    kernel = nki.jit(debug_kernel=True, show_compiler_tb=True, experimental_flags="a")(copied)
    assert np.array_equal(kernel(A), A)


def test_every_command_that_takes_a_kernel_takes_a_target():
    for command in COMMANDS:
        arguments = [p.metavar or "" for p in command.params if isinstance(p, click.Argument)]
        if any(metavar.startswith("FILE:KERNEL") for metavar in arguments):
            assert any("--target" in p.opts for p in command.params), command.name
