"""Which cores a process sees (SDK neuron-runtime/nrt-configurable-parameters.rst)."""

from __future__ import annotations

import pytest

from isa.target import TARGETS
from simulator.runtime.status import NrtError
from simulator.runtime.visible_cores import visible_cores


@pytest.mark.parametrize(
    ("text", "cores"),
    [("0", [0]), ("0-3", [0, 1, 2, 3]), ("2,3", [2, 3]), (" 1-2 , 3 ", [1, 2, 3])],
)
def test_lists_and_ranges(text: str, cores: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", text)
    monkeypatch.setenv("NEURON_RT_NUM_CORES", "1")  # the other one comes first
    assert visible_cores() == cores


@pytest.mark.parametrize("text", ["a", "0,2", "3-1", "1,0", "0,0", "-1", "0-", ","])
def test_what_is_no_ascending_list_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", text)
    with pytest.raises(NrtError):
        visible_cores()


def test_a_number_of_cores_or_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEURON_RT_VISIBLE_CORES", raising=False)
    monkeypatch.setenv("NEURON_RT_NUM_CORES", "2")
    assert visible_cores() == [0, 1]
    monkeypatch.setenv("NEURON_RT_NUM_CORES", "two")
    with pytest.raises(NrtError):
        visible_cores()
    monkeypatch.delenv("NEURON_RT_NUM_CORES")
    most = max(target.cores_per_device.value for target in TARGETS.values())
    assert visible_cores() == list(range(most))
