"""`nki diff`: where two ways of running a kernel part."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_lines import run, run_json

SOURCE = """
import nki, nki.isa as nisa, nki.language as nl

@nki.jit
def summed(a):
    tile = nl.load(a)
    for _ in range(4):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=0.001)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out
"""


@pytest.fixture
def kernel(tmp_path: Path) -> tuple[str, ...]:
    path = tmp_path / "summed.py"
    path.write_text(SOURCE)
    return "diff", f"{path}:summed", "--input", "a=ones(4,8):bfloat16", "--target", "trn2"


@pytest.mark.parametrize("modes", ["eager,device", "reference,native"])
def test_modes_agree_bit_for_bit(kernel, modes: str, capsys) -> None:
    code, data = run_json(capsys, *kernel, "--modes", modes)
    assert code == 0 and data["agrees"] and data["first"] is None
    assert data["instructions"] == 6 and data["instructions_unequal"] == 0


def test_the_first_difference_is_where_rounding_shows(kernel, capsys) -> None:
    code, data = run_json(capsys, *kernel, "--modes", "device,fp32")
    first = data["first"]
    assert code == 1 and not data["agrees"]
    assert (first["operation"], first["line"]) == ("tensor_scalar", 8)
    one, other = first["first_values"]
    assert one == 1.0 and other == pytest.approx(1.001)  # bfloat16 has steps of 2**-7 there
    code, out, _ = run(capsys, *kernel, "--modes", "device,fp32", "--tolerance", "2")
    assert code == 0 and "no difference" in out


def test_modes_that_there_are_none_of(kernel, capsys) -> None:
    code, _, err = run(capsys, *kernel, "--modes", "device")
    assert code != 0 and "--modes device is no pair of" in err
