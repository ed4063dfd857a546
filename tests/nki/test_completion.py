"""`dir`, and so completion in notebooks, offers what is documented of kernels."""

import inspect

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit(platform_target="trn2")
def copy(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=a)
    return out


COMPILED = nki.compile(copy, nki.TensorSpec((2, 3), nl.float32))


@pytest.mark.parametrize("shown", [copy, COMPILED], ids=["kernel", "compiled"])
def test_members_that_are_offered_are_documented(shown):
    members = [name for name in dir(type(shown)) if not name.startswith("_")]
    assert members
    for name in members:
        assert inspect.getdoc(inspect.getattr_static(type(shown), name)), name


@pytest.mark.parametrize(
    ("shown", "offered"),
    [
        (copy, {"func", "on", "target", "trace", "with_schedule", "with_transformations"}),
        (COMPILED, {"bind", "profile", "program", "program_for", "save", "target"}),
    ],
    ids=["kernel", "compiled"],
)
def test_what_the_project_uses_itself_is_not_offered(shown, offered):
    assert offered <= set(dir(shown))
    assert shown._internal and not shown._internal & {*dir(shown), *dir(type(shown))}
    assert all(hasattr(shown, name) for name in shown._internal)


def test_a_kernel_still_calls():
    np.testing.assert_array_equal(copy(np.ones((2, 3), np.float32)), 1)
