"""Command lines of tests: kernels of a user, and what a command writes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nki.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command line."""
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict]:
    """Exit code and data of a command line with --json."""
    code, out, err = run(capsys, *arguments, "--json")
    assert err == ""
    return code, json.loads(out)


INPUT = ("--input", "a=normal(256,64):bfloat16", "--target", "trn2")


def compiled(file: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The container of a kernel of `file`."""
    container = str(Path(file).with_name("rows.neff"))
    code, data = run_json(
        capsys,
        *("compile", f"{file}:rows", "--input", "a=(M,64):bfloat16", "--target", "trn2"),
        *("--symbol", "M:multiple_of=128,max=1024", "-o", container),
    )
    assert code == 0 and data["bytes"] == os.path.getsize(container)
    assert [symbol["name"] for symbol in data["symbols"]] == ["M"]
    assert data["parameters"] == [{"name": "a", "shape": ["M", "64"], "dtype": "bfloat16"}]
    (core,) = data["cores"]
    assert core["instructions"]["sync"]["DmaCopy"] >= 1
    assert core["memory"]["sbuf"]["peak_bytes_per_partition"] >= 128
    assert core["memory"]["sbuf"]["capacity_bytes_per_partition"] == 224 * 1024
    return container


KERNELS = '''
"""Kernels for the tests of the command line. Nothing here is a notebook cell."""
from __future__ import annotations

import dataclasses
import pathlib

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl


@dataclasses.dataclass
class Options:
    factor: float = 2.0


def scaled_numpy(a, factor=2.0):
    return a.astype(np.float32) * factor


def wrong_numpy(a):
    return a.astype(np.float32) * 2.01


def body(a, factor):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for start in range(0, a.shape[0], 128):
        rows = nl.ds(start, 128)
        tile = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[rows, :])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
        nisa.dma_copy(dst=out[rows, :], src=tile)
    return out


@nki.jit
def scaled(a, factor=2.0):
    pathlib.Path(__file__).with_suffix(".traced").touch()
    return body(a, Options(factor).factor)


def scaled_plain(a):
    return body(a, 2.0)


@nki.jit
def rows(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(a.shape[0] // 128):
        tile = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[nl.ds(i * 128, 128), :])
        nisa.dma_copy(dst=out[nl.ds(i * 128, 128), :], src=tile)
    return out


@nki.jit
def too_tall(a):
    tile = nl.ndarray((256, 4), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    return tile


@nki.jit
def raises(a):
    return {}["missing"]


@nki.jit
def forgets(a):
    return nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)


NOT_A_KERNEL = 3
'''
