"""Sweeps: their table, their picture, and grids without settings."""

from __future__ import annotations

import pytest
from tuned_kernels import A, shifted

import nki

pytestmark = pytest.mark.usefixtures("no_kept_times")


def test_settings_that_do_not_compile_are_in_the_table_with_the_reason(capfd):
    found = nki.sweep(shifted, {"pieces": [256, 512, 1]}, processes=1)(A)
    assert [bool(m.error) for m in found.measurements] == [False, True, False]
    assert "pieces are even" in found.text()
    assert "pieces are even" in found._repr_html_()
    assert found.best.setting == {"pieces": 1}
    assert capfd.readouterr() == ("", "")  # a bar is for terminals only


def test_a_sweep_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    figure = nki.sweep(shifted, {"pieces": [1, 2, 4]}, processes=1)(A).plot()
    assert len(figure.axes[0].patches) == 3
    figure.savefig(tmp_path / "sweep.png")


def test_a_grid_without_settings_is_refused():
    with pytest.raises(nki.NeuronError, match="no settings"):
        nki.sweep(shifted, {"pieces": []})
