"""`nki hlo`: what its commands print, write and return, for good and for bad graphs."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conformance_models import MODELS

from graph_compiler import load, parse_text, to_proto
from graph_compiler.cli import hlo_command
from graph_compiler.frontends.sniff import sniff
from nki.cli import main
from nki.extensions import extensions

ROOT = Path(__file__).resolve().parents[2]

TEXT = """HloModule step, input_output_alias={ {1}: (1, {}, may-alias) }

ENTRY main {
  x = f32[2,3] parameter(0)
  state = bf16[4] parameter(1)
  flag = pred[] parameter(2)
  twice = f32[2,3] add(x, x)
  root = f32[2,3] tanh(twice)
  next = bf16[4] negate(state)
  ROOT out = (f32[2,3], bf16[4], pred[]) tuple(root, next, flag)
}
"""

WRONG = """HloModule wrong
ENTRY main {
  x = f32[2,3] parameter(0)
  one = f32[3,2] negate(x)
  two = s32[2,3] tanh(x), metadata={source_file="model.py" source_line=7}
  ROOT out = f32[2,3] bogus(x)
}
"""


ENDLESS = """HloModule endless
body { s = s32[] parameter(0)
  ROOT t = s32[] negate(s) }
always { s = s32[] parameter(0)
  ROOT c = pred[] constant(true) }
ENTRY main { s = s32[] parameter(0)
  ROOT w = s32[] while(s), condition=always, body=body }
"""


@pytest.mark.parametrize("executor", ["host", "reference"])
def test_the_limit_of_loops_is_an_option(
    executor: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "endless.txt"
    path.write_text(ENDLESS)
    code, _, err = run(capsys, "run", path, "--loop-limit", 7, "--executor", executor)
    assert code != 0 and "more than 7 iterations" in err and "loop-limit" in err


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "step.txt"
    path.write_text(TEXT)
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `nki hlo`."""
    code = main(["hlo", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def run_json(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, Any]:
    code, out, err = run(capsys, *arguments, "--json")
    assert err == ""
    return code, json.loads(out)


def test_the_command_is_an_entry_point_that_pyproject_declares() -> None:
    """In a wheel and in an editable install alike; this one may have to be made again."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    for group, entries in declared.items():
        found = {entry.name: entry.value for entry in entry_points(group=group)}
        assert entries.items() <= found.items(), "install the project again: pip install -e ."
    assert extensions("nki.commands", own=True)["hlo"].load() is hlo_command


def test_other_commands_do_not_import_this_package() -> None:
    code = "import sys, nki.cli; nki.cli.main(['errors']); print('graph_compiler' in sys.modules)"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.endswith("False\n")


def test_a_command_that_cannot_be_imported_is_listed_and_says_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "graph_compiler.cli", None)
    assert main(["--help"]) == 0
    assert "hlo" in (out := capsys.readouterr().out) and "cannot be loaded" in out
    assert main(["hlo", "info", "x", "--json"]) == 70
    assert "graph_compiler.cli" in json.loads(capsys.readouterr().out)["error"]["what"]


def test_info_counts_sizes_and_operations(capsys: pytest.CaptureFixture[str], graph: Path) -> None:
    code, facts = run_json(capsys, "info", graph)
    assert code == 0
    assert facts["parameters"] == [
        {"name": "x", "shape": "f32[2,3]", "bytes": 24},
        {"name": "state", "shape": "bf16[4]", "bytes": 8},
        {"name": "flag", "shape": "pred[]", "bytes": 1},
    ]
    assert [row["bytes"] for row in facts["results"]] == [24, 8, 1]
    assert (facts["parameter_bytes"], facts["result_bytes"]) == (33, 33)
    assert facts["aliases"] == [{"output": [1], "parameter": 1, "component": [], "kind": "may"}]
    assert facts["opcodes"] == {"parameter": 3, "add": 1, "negate": 1, "tanh": 1, "tuple": 1}
    assert (facts["flops"], facts["transcendentals"]) == (6 + 4, 6)
    code, out, _ = run(capsys, "info", graph)
    assert code == 0 and "step" in out and "33 bytes" in out and "bf16[4]" in out


@pytest.mark.skipif(not MODELS.exists(), reason=f"no model files in {MODELS}")
def test_info_of_a_model_is_what_its_index_says(capsys: pytest.CaptureFixture[str]) -> None:
    name = "lstm_train_adam"
    index = json.loads((MODELS / "index.json").read_text())[name]
    _, facts = run_json(capsys, "info", MODELS / f"{name}.hlo.pb")
    assert len(facts["parameters"]) == len(index["inputs"])
    assert facts["format"] == "proto"
    out = run(capsys, "info", MODELS / f"{name}.hlo.pb")[1]
    hidden = f"... and {len(facts['parameters']) - 20} more (--all)"
    assert hidden in out
    assert hidden not in run(capsys, "info", MODELS / f"{name}.hlo.pb", "--all")[1]


def test_check_lists_every_finding(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "wrong.txt"
    path.write_text(WRONG)
    code, data = run_json(capsys, "check", path)
    assert code == 7
    assert [finding["code"] for finding in data["findings"]] == [
        "hlo-shape-mismatch",
        "hlo-type-mismatch",
        "hlo-unknown-opcode",
    ]
    assert "`one`" in data["findings"][0]["what"]
    assert "model.py:7" in data["findings"][1]["what"]
    code, out, _ = run(capsys, "check", path)
    assert code == 7 and out.count("error[NKI07") == 3 and "3 findings" in out


def test_check_of_a_good_graph_only_remarks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, graph: Path
) -> None:
    assert run_json(capsys, "check", graph)[1]["remarks"] == []
    path = tmp_path / "calls.txt"
    path.write_text(
        "HloModule m\nENTRY e {\n  x = f32[] parameter(0)\n  y = f32[] negate(x)\n"
        '  ROOT r = f32[] custom-call(x), custom_call_target="theirs"\n}\n'
    )
    code, data = run_json(capsys, "check", path)
    assert code == 0 and data["findings"] == []
    assert ["theirs" in remark or "`y`" in remark for remark in data["remarks"]] == [True, True]


def test_aliases_of_what_is_not_there_are_findings(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "aliases.txt"
    for entry in ("{3}: (1, {}", "{1}: (9, {}", "{1}: (0, {}", "{1}: (1, {2}"):
        path.write_text(TEXT.replace("{1}: (1, {}", entry))
        code, data = run_json(capsys, "check", path)
        assert code == 7 and data["findings"][0]["code"] == "hlo-invalid", entry


@pytest.mark.parametrize("suffix", [".pb", ".txt"])
def test_convert_keeps_the_graph(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path, suffix: str
) -> None:
    target = tmp_path / f"out{suffix}"
    code, data = run_json(capsys, "convert", graph, "-o", target)
    assert code == 0 and data["saved"] == str(target)
    assert sniff(target.read_bytes()) == {".pb": "proto", ".txt": "text"}[suffix]
    assert to_proto(load(target)) == to_proto(parse_text(TEXT))
    assert data["bytes"] == target.stat().st_size


def test_convert_makes_names_unique(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, target = tmp_path / "names.txt", tmp_path / "names.pb"
    path.write_text(
        "HloModule m\nf {\n  x = f32[] parameter(0)\n  ROOT r = f32[] negate(x)\n}\n"
        "ENTRY e {\n  x = f32[] parameter(0)\n  ROOT r = f32[] call(x), to_apply=f\n}\n"
    )
    assert run(capsys, "convert", path, "-o", target)[0] == 0
    names = [item.name for item in load(target).instructions()]
    assert names == ["x", "r", "x.1", "r.1"]


def test_convert_prints_text(capsys: pytest.CaptureFixture[str], graph: Path) -> None:
    code, out, _ = run(capsys, "convert", graph)
    assert code == 0 and to_proto(parse_text(out)) == to_proto(parse_text(TEXT))
    assert "/*@" not in run(capsys, "convert", graph, "--plain")[1]


def test_convert_to_stablehlo_and_back(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    pytest.importorskip("jax", reason="jax is not installed (pip install 'opennki[jax]')")
    target = tmp_path / "out.mlir"
    assert run(capsys, "convert", graph, "-o", target)[0] == 0
    assert "stablehlo.tanh" in target.read_text()
    assert run_json(capsys, "info", target)[1]["opcodes"]["tanh"] == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["-o", "{folder}/out.xyz"], 2),
        (["--to", "proto"], 2),
        (["--to", "protobuf"], 2),
        (["-o", "{folder}/nowhere/out.pb"], 6),
        (["-o", "{folder}", "--to", "proto"], 6),
    ],
)
def test_convert_writes_nothing_where_it_cannot_write_all(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path, words: list[str], code: int
) -> None:
    given = [word.format(folder=tmp_path) for word in words]
    assert run(capsys, "convert", graph, *given)[0] == code
    assert list(tmp_path.iterdir()) == [graph]


def test_convert_of_a_wrong_graph_leaves_the_file_as_it_was(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    source, target = tmp_path / "wrong.txt", tmp_path / "out.pb"
    source.write_text(WRONG)
    target.write_bytes(b"before")
    assert run(capsys, "convert", source, "-o", target)[0] == 7
    assert target.read_bytes() == b"before"
    assert run(capsys, "convert", source, "-o", target, "--no-check")[0] == 0
    assert sniff(target.read_bytes()) == "proto"


def test_run_takes_given_values_and_seeds_the_rest(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    x = np.array([[0.25, -1, 0], [2, 3, 4]], np.float32)
    state = np.arange(4).astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "state.npy", state)
    words = ["--input", f"x={x.tolist()}", "--input", f"state=@{tmp_path}/state.npy"]
    code, data = run_json(
        capsys, "run", graph, *words, "--input", "flag=[1]:bool", "--save-outputs", tmp_path
    )
    assert code == 0 and len(data["saved"]) == 3
    found = [np.load(tmp_path / f"output{number}.npy") for number in range(3)]
    np.testing.assert_allclose(found[0], np.tanh(2 * x), rtol=1e-6)
    assert found[1].view(ml_dtypes.bfloat16).astype(float).tolist() == [0, -1, -2, -3]
    assert found[2].tolist() is True
    one, other, third = (
        run_json(capsys, "run", graph, "--seed", seed)[1]["outputs"] for seed in (1, 1, 2)
    )
    assert one == other != third
    assert [row["dtype"] for row in one] == ["f32", "bf16", "pred"]


@pytest.mark.parametrize("executor", ["host", "reference"])
@pytest.mark.parametrize("other", ["reference", "xla"])
def test_run_compares_with_another_executor(
    capsys: pytest.CaptureFixture[str], graph: Path, executor: str, other: str
) -> None:
    if other == "xla":
        pytest.importorskip("jax", reason="jax is not installed (pip install 'opennki[jax]')")
    code, data = run_json(capsys, "run", graph, "--executor", executor, "--compare", other)
    assert code == 0 and [row["agrees"] for row in data["comparison"]] == [True] * 3
    assert (data["executor"], data["compared_with"]) == (executor, other)


def test_a_difference_is_counted_and_ends_with_1(
    capsys: pytest.CaptureFixture[str], graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graph_compiler import runs

    reference = runs.EXECUTORS["reference"]
    monkeypatch.setitem(
        runs.EXECUTORS, "reference", lambda one: [array * 0 for array in reference(one)]
    )
    code, out, _ = run(capsys, "run", graph, "--compare", "reference")
    assert code == 1 and "6 outside" in out


def test_run_compares_complex_numbers_and_wide_ones(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "wide.txt"
    path.write_text(
        "HloModule m\nENTRY e {\n  x = f64[3] parameter(0)\n  y = f64[3] negate(x)\n"
        "  z = c128[3] complex(x, y)\n  n = s64[3] convert(x)\n"
        "  ROOT t = (c128[3], s64[3], f64[3]) tuple(z, n, y)\n}\n"
    )
    code, data = run_json(capsys, "run", path, "--compare", "reference")
    assert code == 0 and [row["agrees"] for row in data["comparison"]] == [True] * 3
    assert [row["dtype"] for row in data["outputs"]] == ["c128", "s64", "f64"]


def test_run_on_several_ranks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "ranks.txt"
    path.write_text(
        "HloModule m\nadd {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
        "  ROOT c = f32[] add(a, b)\n}\nENTRY e {\n  x = f32[2] parameter(0)\n"
        "  ROOT r = f32[2] all-reduce(x), replica_groups={}, to_apply=add\n}\n"
    )
    code, data = run_json(capsys, "run", path, "--ranks", 3, "--input", "x=[1.0,2.0]")
    assert code == 0 and data["outputs"][0]["first"] == [3, 6]
    assert run(capsys, "run", path, "--ranks", 3, "--executor", "xla")[0] == 2
    assert run(capsys, "run", path, "--ranks", 3, "--partitions", 2)[0] == 5


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["run", "{graph}", "--input", "y=[1]"], 2, "no parameter y"),
        (["run", "{graph}", "--input", "x=normal(7)"], 5, "f32[2,3]"),
        (["run", "{graph}", "--input", "x=@missing.npy"], 6, "missing.npy"),
        (["run", "{graph}", "--executor", "device"], 2, "device"),
        (["run", "{graph}", "--compare", "device"], 2, "device"),
        (["run", "{graph}", "--save-outputs", "{graph}"], 6, "not a folder"),
        (["info", "missing.pb"], 6, "missing.pb"),
        (["info"], 2, "FILE"),
        ([], 2, "nki hlo --help"),
        (["inform", "{graph}"], 2, "inform"),
    ],
)
def test_mistakes_end_with_the_codes_of_the_table(
    capsys: pytest.CaptureFixture[str], graph: Path, words: list[str], code: int, said: str
) -> None:
    found, out, err = run(capsys, *(word.format(graph=graph) for word in words))
    assert (found, out) == (code, "") and said in err
    assert list(graph.parent.iterdir()) == [graph]


@pytest.mark.parametrize("command", ["info", "run", "convert", "check"])
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "format-unknown"),
        (b"%PDF-1.7", "format-unknown"),
        (b"HloModule m\nENTRY e {\n  x = f32[] parameter(0)\n", "hlo-truncated"),
        (to_proto(parse_text(TEXT))[:-40], "hlo-truncated"),
    ],
)
def test_files_that_are_no_graphs_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, data: bytes, code: str
) -> None:
    path = tmp_path / "bad.pb"
    path.write_bytes(data)
    found, report = run_json(capsys, command, path)
    assert found == report["exit_code"] == 7 and report["error"]["code"] == code
