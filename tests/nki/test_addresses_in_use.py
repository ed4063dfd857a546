"""Tensors at addresses: which share bytes, and which use is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa.enums import Memory
from isa.errors import NeuronError
from nki.ir.checks.addresses_in_use import AddressesInUse, share_bytes
from nki.ir.nodes import Tensor

BOXES = st.tuples(st.integers(0, 6), st.integers(1, 4), st.integers(0, 6), st.integers(1, 4))


def tensor(box: tuple[int, int, int, int], name: str = "t", core: int = 0) -> Tensor:
    first, rows, start, columns = box
    return Tensor(0, name, Memory.sbuf, "uint8", (rows, columns), address=(first, start), core=core)


def covered(box: tuple[int, int, int, int]) -> np.ndarray:
    first, rows, start, columns = box
    memory = np.zeros((12, 12), bool)
    memory[first : first + rows, start : start + columns] = True
    return memory


@given(BOXES, BOXES)
def test_bytes_are_shared_where_boxes_meet(one: tuple, other: tuple) -> None:
    expected = bool((covered(one) & covered(other)).any())
    assert share_bytes(tensor(one), tensor(other)) == expected
    assert not share_bytes(tensor(one), tensor(other, core=1))


@given(st.lists(BOXES, min_size=1, max_size=4), st.lists(st.integers(0, 3), max_size=10))
def test_a_use_behind_that_of_another_tensor_there_is_refused(
    boxes: list[tuple], uses: list[int]
) -> None:
    tensors = [tensor(box, f"t{number}") for number, box in enumerate(boxes)]
    checked, before = AddressesInUse(), []
    for use in (number for number in uses if number < len(boxes)):
        since = before[before.index(use) + 1 :] if use in before else []
        if any((covered(boxes[use]) & covered(boxes[k])).any() for k in since if k != use):
            with pytest.raises(NeuronError) as caught:
                checked.access(tensors[use])
            assert caught.value.code == "address-overlap"
            return
        checked.access(tensors[use])
        before.append(use)


def test_bytes_of_what_is_gone_are_free_again() -> None:
    one, other = tensor((0, 4, 0, 4), "one"), tensor((0, 4, 2, 4), "other")
    checked = AddressesInUse()
    checked.access(one)
    checked.access(other)
    with pytest.raises(NeuronError):
        checked.access(one)
    checked.forget(one)
    checked.access(one)
