"""Memory of eager tensors."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

from isa.enums import Memory
from nki.eager.storage import Storage
from nki.ir.nodes import Tensor
from simulator.checks.initialised import Shadow


def test_memory_that_cannot_be_had_is_one_error(monkeypatch):
    """What was begun is taken down without another error, which Python would only print."""
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)

    def no_memory(*arguments):
        raise MemoryError

    tensor = Tensor(0, "large", Memory.private_hbm, "float32", (1 << 20,))
    with monkeypatch.context() as patched:
        patched.setattr(np, "empty", no_memory)
        with pytest.raises(MemoryError):
            Storage(tensor, tensor.shape, Shadow())
    gc.collect()
    assert unraisable == []
