"""What can be read off a compiled program."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
from isa.sections import plain_text
from nki.displays.program_facts import program_data, program_sections


@nki.jit
def products(a, b):
    left, right = nl.load(a), nl.load(b)
    sums = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(sums, left, right)
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(sums))
    return out


SPECS = nki.TensorSpec((128, 128), nl.float32), nki.TensorSpec((128, 512), nl.float32)
DATA = program_data(nki.compile(products, *SPECS, target="trn2").program)


def test_instructions_by_engine() -> None:
    (core,) = DATA["cores"]
    tensor = core["instructions"]["tensor"]
    assert tensor["LoadStationary"] == tensor["MultiplyMoving"] == 1
    counted = sum(sum(of.values()) for of in core["instructions"].values())
    assert counted == DATA["instructions"]


def test_memory_holds_the_tiles() -> None:
    memory = DATA["cores"][0]["memory"]
    assert memory["psum"]["peak_bytes_per_partition"] >= 512 * 4
    assert memory["sbuf"]["peak_bytes_per_partition"] >= (128 + 512) * 4
    assert memory["sbuf"]["capacity_bytes_per_partition"] == 28 * 2**20 // 128  # trn2, published


def test_parameters_and_the_text() -> None:
    assert [one["name"] for one in DATA["parameters"]] == ["a", "b"]
    text = plain_text(program_sections(DATA))
    assert "products" in text and "MultiplyMoving" in text and "trn2" in text
