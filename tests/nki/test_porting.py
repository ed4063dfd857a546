"""What kernels of the first-generation API need."""

from __future__ import annotations

from nki.superseded.porting import is_first_generation, is_kernel_api, note_on_name, notes_on_call

SOURCE = """
import numpy as np
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

def kernel(a):
    tile = nl.load(a, mask=a.mask)
    return nisa.activation(op=np.exp, data=tile)
"""


def test_names_of_either_package() -> None:
    assert is_first_generation("neuronxcc.nki.language.add") and is_kernel_api("nki.language.add")
    assert not is_first_generation("nki.language.add") and not is_kernel_api("numpy.add")
    assert note_on_name("numpy.mgrid") is None


def test_a_name_below_one_that_is_gone_is_gone() -> None:
    assert note_on_name("neuronxcc.nki.kernels.flash_fwd") == note_on_name("neuronxcc.nki.kernels")
    assert "nl.ndarray" in str(note_on_name("neuronxcc.nki.compiler.sbuf.mod_alloc"))


def test_calls() -> None:
    first = "neuronxcc.nki.isa.activation"
    assert [what for what, _ in notes_on_call(first, {"op": "np.exp", "mask": "m"})] == [
        *("", "op=", "mask=")
    ]
    assert notes_on_call("nki.isa.activation", {"op": "nl.exp"}) == []
    assert notes_on_call("neuronxcc.nki.language.load", {}) == []


def test_migration_lists_them_by_line() -> None:
    from nki.superseded.migration import findings

    found = [(one.line, one.note) for one in findings(SOURCE, "kernel.py") if one.note]
    assert {line for line, _ in found} >= {7, 8}
    assert any("dst=" in note for line, note in found if line == 8)
