"""`simulator.by_identity`: equal keys are apart, and keys stay alive."""

import gc
import weakref

import numpy as np
import pytest

from simulator.by_identity import ByIdentity


def test_equal_arrays_are_keys_of_their_own() -> None:
    first, second = np.zeros(3), np.zeros(3)
    found: ByIdentity[str] = ByIdentity()
    found[first] = "first"
    assert first in found and second not in found
    assert found.setdefault(second, "second") == "second"
    assert found.setdefault(first, "other") == found[first] == "first"
    assert sorted(found.values()) == ["first", "second"] and len(found) == 2


def test_what_is_taken_out_is_gone() -> None:
    key = np.zeros(1)
    found: ByIdentity[list[int]] = ByIdentity()
    found[key] = [1]
    assert found.pop(key) == [1] and found.pop(key, []) == []
    with pytest.raises(KeyError):
        found.pop(key)


def test_keys_stay_alive_so_that_nothing_takes_their_place() -> None:
    found: ByIdentity[int] = ByIdentity()
    array = np.zeros(1)
    alive = weakref.ref(array)
    found[array] = 1
    del array
    gc.collect()
    assert alive() is not None
