"""Times that are kept: by what was timed, whatever its names."""

from __future__ import annotations

import pytest
from tuned_kernels import A, shifted

import nki

pytestmark = pytest.mark.usefixtures("no_kept_times")


def test_times_are_kept_by_content():
    calls = []

    @nki.jit
    def copy(a, pieces):
        calls.append(pieces)
        return shifted(a, pieces)

    run = nki.sweep(copy, {"pieces": [1, 2]}, processes=1)
    first, traced = run(A), len(calls)
    assert traced
    assert run(A).measurements == first.measurements
    del calls[traced:]  # what a kernel appends to is part of its content
