"""`nki doctor`: what is imported, and what shadows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nki.cli import main

ROOT = Path(__file__).resolve().parents[2]


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nki.cli", *arguments]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, capture_output=True, text=True, env=variables, cwd="/")


def test_doctor_shows_whether_threads_share_the_work() -> None:
    for wanted in ("1", "two"):
        result = process("doctor", "--json", NKI_NUM_THREADS=wanted)
        assert json.loads(result.stdout)["threads"]["share"] is False
        assert result.returncode == 0
    threads = json.loads(process("doctor", "--json").stdout)["threads"]
    assert 1 <= threads["wanted"] <= 4 and 0 <= threads["others_use"] <= (os.cpu_count() or 1) + 1
    assert "other processes use" in process("doctor").stdout


def test_doctor_finds_nothing_wrong_here() -> None:
    result = process("doctor", "--json")
    data = json.loads(result.stdout)
    assert (result.returncode, data["problems"]) == (0, [])
    packages = ("nki", "isa", "simulator", "graph_compiler")
    assert data["packages"] == {name: str(ROOT / name) for name in packages}
    assert data["libraries"]["numpy"] == np.__version__
    assert data["target"]["name"] in ("trn1", "trn2", "trn3")
    text = process("doctor", NEURON_PLATFORM_TARGET_OVERRIDE="inf2").stdout
    assert "trn1 (NEURON_PLATFORM_TARGET_OVERRIDE)" in text


@pytest.mark.parametrize("package", ["isa", "simulator"])
def test_doctor_names_a_package_that_shadows_ours(tmp_path, package) -> None:
    (tmp_path / package).mkdir()
    for module in ("__init__", "errors"):
        (tmp_path / package / f"{module}.py").write_text("")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    result = process("doctor", PYTHONPATH=path)
    assert result.returncode == 1
    assert f"import {package}" in result.stdout and "shadows" in result.stdout
    assert str(tmp_path / package) in result.stdout
    if package == "isa":
        result = process("errors", PYTHONPATH=path)
        assert result.returncode == 70 and "nki doctor" in result.stderr
        assert "Traceback" not in result.stderr


def test_doctor_names_a_wheel_that_installs_the_same_package(tmp_path) -> None:
    information = tmp_path / "neuronx_cc-2.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: neuronx-cc\nVersion: 2.0\n")
    (information / "top_level.txt").write_text("neuronxcc\nnki\n")
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    result = process("doctor", PYTHONPATH=path)
    assert result.returncode == 1
    assert "neuronx-cc 2.0" in result.stdout and "vendor" in result.stdout
    (information / "top_level.txt").write_text("neuronxcc\n")
    result = process("doctor", PYTHONPATH=path)
    assert result.returncode == 0 and "neuronx-cc 2.0" in result.stdout


def test_doctor_names_a_folder_in_the_way(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "simulator.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert main(["doctor"]) == 1
    assert str(tmp_path / "simulator.py") in capsys.readouterr().out
