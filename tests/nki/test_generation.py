"""Which silicon a kernel asks for."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa


@pytest.mark.parametrize(("target", "version"), [("trn1", 2), ("trn2", 3), ("trn3", 4)])
def test_a_kernel_sees_its_target_and_others_the_default(
    monkeypatch: pytest.MonkeyPatch, target: str, version: int
) -> None:
    seen = []

    @nki.jit(platform_target=target)
    def kernel(a):
        seen.append(nisa.get_nc_version())

    kernel(np.zeros((1, 1), np.float32))
    assert seen == [nisa.nc_version(version)] == [getattr(nisa.nc_version, f"gen{version}")]
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    assert nisa.get_nc_version() == nisa.nc_version(version)
    assert nisa.get_nc_sub_version() == 0


def test_versions_are_ordered() -> None:
    versions = nisa.nc_version
    assert versions.gen2 < versions.gen3 < versions.gen4
