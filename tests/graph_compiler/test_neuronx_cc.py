"""The command `neuronx-cc`: each option by something that it changes, or says that it does not."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nki
from graph_compiler.command import arguments, main
from graph_compiler.command.arguments import OPTIONS, Option

DOT = """HloModule product
ENTRY e {
  x = f32[4,8] parameter(0)
  y = f32[8,4] parameter(1)
  ROOT d = f32[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""

NEGATE = """HloModule small
ENTRY e { x = f32[4] parameter(0)
  ROOT r = f32[4] negate(x) }"""

FLOAT8 = """HloModule small
ENTRY e { x = f8e4m3fn[4] parameter(0)
  ROOT r = f32[4] convert(x) }"""

POWER = """HloModule powers
ENTRY e { x = s64[4] parameter(0)
  y = s64[4] parameter(1)
  ROOT r = s64[4] power(x, y) }"""

INTEGERS = """HloModule product
ENTRY e {
  x = s32[4,8] parameter(0)
  y = s32[8,4] parameter(1)
  ROOT d = s32[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""

WRONG = """HloModule wrong
ENTRY e { x = f32[4] parameter(0)
  ROOT r = f32[5] negate(x) }"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("NEURON_COMPILE_CACHE_URL", "NEURON_LOGICAL_NC_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def compiling(*words: str, text: str = NEGATE, target: str = "trn2") -> int:
    Path("model.hlo").write_text(text)
    return main(["compile", "model.hlo", "--framework", "XLA", "--target", target, *words])


def cores_of(path: str) -> int:
    return len(nki.load(path).program.cores)


def log() -> str:
    return Path("log-neuron-cc.txt").read_text()


def test_a_graph_becomes_a_program_that_runs() -> None:
    assert compiling() == 0
    found = nki.load("file.neff")(np.array([1, -2, 3, 0], np.float32))
    np.testing.assert_array_equal(found, [-1, 2, -3, 0])
    assert "wrote file.neff" in log()


def test_what_nkipy_passes() -> None:
    Path("hlo_module.pb").write_text(NEGATE)
    words = "compile --framework XLA hlo_module.pb --pipeline compile SaveTemps --target trn1"
    more = "--output=kernel.neff --lnc 1 --internal-tensorizer-opt-level=2"
    assert main([*words.split(), *more.split()]) == 0
    assert Path("kernel.neff").exists()
    assert Path("graph.hlo.txt").read_text().startswith("HloModule small")
    assert "dma_copy" in Path("tile_ir.txt").read_text()
    assert ".program" in Path("program.txt").read_text()


@pytest.mark.parametrize("name", arguments.TARGETS)
def test_target(name: str) -> None:
    assert compiling(target=name) == 0
    expected = {"inf2": "trn1", "trn1n": "trn1"}.get(name, name)
    assert nki.load("file.neff").target == expected


def result(*words: str) -> np.ndarray:
    assert compiling(*words, text=DOT) == 0
    random = np.random.default_rng(0)
    x, y = (random.standard_normal(shape).astype(np.float32) for shape in ((4, 8), (8, 4)))
    exact = x.astype(np.float64) @ y
    found = nki.load("file.neff")(x, y)
    bf16, fp16 = (
        x.astype(type).astype(np.float64) @ y.astype(type).astype(np.float64)
        for type in (ml_dtypes.bfloat16, np.float16)
    )
    distances = {"fp32": exact, "bf16": bf16, "fp16": fp16}
    return min(distances, key=lambda name: np.abs(found - distances[name]).max())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", "fp32"),
        ("--auto-cast none --auto-cast-type fp16", "fp32"),
        ("--auto-cast=matmult", "bf16"),
        ("--auto-cast all --auto-cast-type=fp16", "fp16"),
        ("--auto-cast matmult --auto-cast=none", "fp32"),
        ("--auto-cast none --auto-cast=matmult", "bf16"),
        ("--auto-cast=matmult --auto-cast-type=tf32", "fp16"),  # has as many bits here
    ],
)
def test_auto_cast_and_the_right_most_option(words: str, expected: str) -> None:
    assert result(*words.split()) == expected


def test_logical_cores(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for spelling in (["--lnc", "2"], ["-lnc", "2"], ["--logical-nc-config=2"]):
        assert compiling(*spelling, target="trn1") != 0
        assert "NCC_EARG001" in capsys.readouterr().err
    assert compiling("--lnc", "2") == 0
    assert cores_of("file.neff") == 2
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    assert compiling() == 0
    assert cores_of("file.neff") == 2
    assert compiling("--lnc", "1") == 0
    assert cores_of("file.neff") == 1


def test_float8(capsys: pytest.CaptureFixture[str]) -> None:
    assert compiling(text=FLOAT8) != 0
    assert "NCC_EVRF051" in capsys.readouterr().err
    assert not Path("file.neff").exists()
    assert compiling("--experimental-unsafe-fp8e4m3fn-as-fp8e4m3", text=FLOAT8) == 0
    assert compiling(text=FLOAT8, target="trn3") == 0


@pytest.mark.parametrize("words", ["none", "pow,scatter"])
def test_integers_that_must_not_be_downcast(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert compiling("--implicit-integer-downcast", words, text=INTEGERS) != 0
    assert "NCC_EVRF035: dot `d`" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["default", "all", "dot"])
def test_integers_that_may_be(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert compiling(f"--implicit-integer-downcast={words}", text=INTEGERS) == 0
    assert "dot `d`" in capsys.readouterr().err  # a warning
    x, y = np.ones((4, 8), np.int32), np.arange(32, dtype=np.int32).reshape(8, 4)
    y[0, 0] = (1 << 24) + 1  # fp32 does not hold it
    found = nki.load("file.neff")(x, y)
    expected = x @ y
    expected[:, 0] -= 1
    np.testing.assert_array_equal(found, expected)


def test_downcasts_that_there_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert compiling("--implicit-integer-downcast", "dot,sum") == 2
    assert "dot,sum" in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["default", "enabled", "disabled"])
def test_64_bit_integers_never_lose_bits(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--native-int64", mode, "--implicit-integer-downcast", "none"]
    assert compiling(*words, text=POWER) != 0
    assert "NCC_EVRF062" in capsys.readouterr().err


NO_EFFECT = [row for row in OPTIONS if row.no_effect]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    place = tmp_path_factory.mktemp("plain")
    (place / "m").write_text(NEGATE)
    words = ["compile", str(place / "m"), "--framework=XLA", "--target=trn2"]
    assert main([*words, f"--output={place}/o", f"--logfile={place}/l"]) == 0
    return (place / "o").read_bytes()


@pytest.mark.parametrize("row", NO_EFFECT, ids=lambda row: row.names[0])
def test_options_without_effect_say_so_and_have_none(
    row: Option, plain: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    value = [] if row.constant is not None else [row.values[-1] if row.values else "1"]
    assert compiling(row.names[0], *value) == 0
    assert f"{row.names[0]} has no effect: {row.no_effect}" in log()
    assert main(["compile", "--help"]) == 0
    assert f"No effect: {row.no_effect}." in " ".join(capsys.readouterr().out.split())
    assert Path("file.neff").read_bytes() == plain


@pytest.mark.parametrize("row", [r for r in OPTIONS if r.deprecated], ids=lambda r: r.names[0])
def test_deprecated_options_warn(row: Option, capsys: pytest.CaptureFixture[str]) -> None:
    assert compiling(row.names[0], *([] if row.constant else ["4"])) == 0
    assert "is deprecated" in capsys.readouterr().err


def test_accumulation_stays_in_fp32(plain: bytes) -> None:
    assert compiling("--enable-mixed-precision-accumulation") == 0
    assert Path("file.neff").read_bytes() == plain


LAYER = """HloModule layer
ENTRY e {
  x = f32[64,512] parameter(0)
  w = f32[512,1024] parameter(1)
  b = f32[1024] parameter(2)
  d = f32[64,1024] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[64,1024] broadcast(b), dimensions={1}
  s = f32[64,1024] add(d, c)
  ROOT r = f32[64,1024] tanh(s)
}"""
"""A graph of which another plan than the first is faster."""


def test_level_in_all_spellings() -> None:
    """From 2 on plans are tried."""
    made = []
    for words in (["-O1"], ["-O", "3"], ["--optlevel=2"], []):
        assert compiling(*words, text=LAYER) == 0
        made.append(Path("file.neff").read_bytes())
    assert made[0] != made[1] == made[2] == made[3]


def test_logfile_and_its_level() -> None:
    assert compiling("--logfile", "other.txt", "--logfile-verbose=error") == 0
    assert Path("other.txt").read_text() == ""
    assert not Path("log-neuron-cc.txt").exists()


def test_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    assert compiling() == 0
    assert capsys.readouterr() == ("", "")
    assert compiling("--verbose", "info") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    for stage in ("read", "assemble", "allocate", "schedule", "verify", "write"):
        assert re.search(rf"^{stage}: \d+\.\d+ s$", shown.out, re.MULTILINE)
    assert compiling("--verbose", "critical", text=WRONG) != 0
    assert capsys.readouterr() == ("", "")
    assert "NCC_EVRF064" in log()


def test_output_is_whole_or_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file.neff").write_bytes(b"before")
    assert compiling(text=WRONG) == 7
    assert compiling("--output", "nowhere/file.neff") == 6

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    assert compiling("--cache_dir", "kept") == 130
    assert Path("file.neff").read_bytes() == b"before"
    names = sorted(path.name for path in Path().iterdir())
    assert names == ["file.neff", "kept", "log-neuron-cc.txt", "model.hlo"]
    monkeypatch.undo()


def kept(root: str) -> list[Path]:
    return sorted(Path(root).rglob("*.neff"))


def test_programs_are_kept_by_content_and_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", f"file://{Path('kept').absolute()}")
    assert compiling("--no_cache") == 0
    assert kept("kept") == []
    assert compiling() == 0
    (place,) = kept("kept")
    assert re.fullmatch(r"MODULE_[0-9a-f]+\+[0-9a-f]+", place.parent.name)
    first = Path("file.neff").read_bytes()
    assert place.read_bytes() == first
    assert compiling("--output", "again.neff") == 0
    assert "assemble" not in log() and Path("again.neff").read_bytes() == first
    assert compiling("--auto-cast", "all") == 0
    assert compiling(text=DOT) == 0
    assert compiling(target="trn1") == 0
    assert len(kept("kept")) == 4


def test_a_broken_file_among_those_kept_is_replaced() -> None:
    assert compiling("--cache_dir", "kept") == 0
    (place,) = kept("kept")
    whole = place.read_bytes()
    place.write_bytes(whole[:100])
    assert compiling("--cache_dir", "kept") == 0
    assert "assemble" in log() and place.read_bytes() == whole


def test_programs_are_kept_on_this_machine_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert compiling("--cache_dir", "s3://bucket/programs") == 2
    assert "s3://bucket" in capsys.readouterr().err


def test_tensorize_prints_source_and_keeps_tile_ir(capsys: pytest.CaptureFixture[str]) -> None:
    from tile_ir.parser import parse_kernel

    assert compiling("--pipeline", "tensorize", "SaveTemps") == 0
    shown = capsys.readouterr().out
    assert "@nki.jit" in shown
    assert parse_kernel(Path("tile_ir.txt").read_text()).name == "small"
    assert not Path("file.neff").exists()


def test_a_report_says_where_the_time_goes() -> None:
    assert compiling("--report", "r.json", text=DOT) == 0
    found = json.loads(Path("r.json").read_text())
    assert found["bytes"]["hbm_read"] >= (4 * 8 + 8 * 4) * 4
    assert found["bytes"]["hbm_write"] >= 4 * 4 * 4
    assert [region["operator"] for region in found["regions"]] == ["dot"]
    for spots in found["hot_spots"].values():
        assert sum(spot["path_ns"] for spot in spots) == pytest.approx(found["total_ns"])
    assert compiling("--report", "r.html", text=DOT) == 0
    assert ">dot</td>" in Path("r.html").read_text()
    assert compiling("--report", "no/r.html", text=DOT) != 0
    assert not Path("no").exists()


LAYERS = """HloModule deep
ENTRY e {
  x = f32[16,32] parameter(0)
LINES
}"""


def deep(count: int) -> str:
    """Layers that are alike, with weights of their own, and what has no schedule of its own."""
    lines, value = [], "x"
    for n in range(count):
        lines.append(f"  w{n} = f32[32,32] parameter({n + 1})")
        lines.append(
            f"  d{n} = f32[16,32] dot({value}, w{n}), lhs_contracting_dims={{1}}, "
            "rhs_contracting_dims={0}"
        )
        value = f"d{n}"
        for step in range(24):
            op = ("tanh", "negate", "cosine", "abs")[step % 4]
            lines.append(f"  v{n}_{step} = f32[16,32] {op}({value})")
            value = f"v{n}_{step}"
    lines += [
        f"  i = s32[5,1] parameter({count + 1})",
        f"  u = f32[5,32] parameter({count + 2})",
        f"  ROOT last = f32[16,32] scatter({value}, i, u), update_window_dims={{1}}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
        "to_apply=times",
    ]
    times = (
        "times { a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
        " ROOT r = f32[] multiply(a, b) }\n"
    )
    return LAYERS.replace("LINES", "\n".join(lines)).replace("ENTRY", times + "ENTRY")


def test_a_report_says_the_trips_of_layers_and_what_has_no_schedule_of_its_own() -> None:
    assert compiling("-O1", "--report", "r.json", text=deep(5)) == 0
    found = json.loads(Path("r.json").read_text())
    (loop,) = found["loops"]
    assert (loop["kind"], loop["trips"]) == ("layers", 5)
    (generic,) = found["generic_schedules"]
    assert (generic["instruction"], generic["operator"]) == ("last", "scatter")
    assert compiling("-O1", "--report", "r.html", text=deep(5)) == 0
    page = Path("r.html").read_text()
    assert "Loops" in page and "updates are combined one after another" in page
    assert compiling("--report", "plain.json") == 0
    plain = json.loads(Path("plain.json").read_text())
    assert plain["loops"] == plain["generic_schedules"] == []


def test_tile_ir_as_source_in_the_file_that_nkipy_reads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--pipeline", "tensorize", "SaveTemps", "--tensorizer-options=--print-nki"]
    assert compiling(*words) == 0
    assert Path("nki.py").read_text() == capsys.readouterr().out
    Path("nki.py").unlink()
    assert compiling("--tensorizer-options", "--print-nki --other") == 0
    assert "@nki.jit" in Path("nki.py").read_text()


def test_the_check_of_the_graph_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    text = NEGATE.replace("f32[4] negate", "f32[2,2] negate")
    assert compiling(text=text) == 7
    assert "NCC_EVRF064" in capsys.readouterr().err
    compiling("--internal-hlo2tensorizer-options=--verify-hlo=false", text=text)
    assert "NCC_EVRF064" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["build"],
        ["compile"],
        ["compile", "m", "--framework", "XLA"],
        ["compile", "m", "--target", "trn2"],
        ["compile", "m", "--framework", "TORCH", "--target", "trn2"],
        ["compile", "m", "--framework", "XLA", "--target", "trn9"],
        ["compile", "m", "--framework", "XLA", "--target", "trn2", "--unknown-option"],
        ["compile", "m", "--framework", "XLA", "--target", "trn2", "--outpu", "x"],
        ["compile", "m", "n", "--framework", "XLA", "--target", "trn2"],
        ["compile", "m", "--framework", "XLA", "--target", "trn2", "--optlevel", "4"],
        ["compile", "m", "--framework", "XLA", "--target", "trn2", "--pipeline", "all"],
        ["list-operators"],
        ["list-operators", "--framework", "TF"],
    ],
)
def test_words_that_it_does_not_take(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_model_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compile", "nowhere.pb", "--framework", "XLA", "--target", "trn2"]
    assert main(words) == 6
    assert "nowhere.pb" in capsys.readouterr().err


def test_a_model_behind_the_pipeline() -> None:
    Path("m").write_text(NEGATE)
    words = "compile --framework XLA --target trn2 --pipeline compile SaveTemps m"
    assert main(words.split()) == 0


def test_operators(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list-operators", "--framework", "XLA"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert names == sorted(set(names))
    assert {"Add", "DotGeneral", "BroadcastInDim", "While", "SelectAndScatter"} <= set(names)
    assert "Acosh" not in names


COMMAND = (sys.executable, "-m", "graph_compiler.cli")


def environment(**more: str) -> dict[str, str]:
    top = Path(__file__).resolve().parents[2]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(top), *sys.path]), **more}


def process(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    command, given = [*COMMAND, *words], environment(**more)
    return subprocess.run(command, capture_output=True, text=True, env=given, check=False)


def test_as_a_process() -> None:
    Path("model.hlo").write_text(NEGATE)
    words = ["model.hlo", "--framework", "XLA", "--target", "trn2"]
    done = process("compile", *words, "--verbose", "info")
    assert (done.returncode, done.stderr) == (0, "")
    assert "wrote file.neff" in done.stdout
    shown = process("compile", "--help")
    assert shown.returncode == 0
    assert all(row.names[0] in shown.stdout for row in OPTIONS)


@pytest.mark.parametrize("cores", ["1", "2"])
def test_bytes_do_not_depend_on_the_order_of_hashes(cores: str) -> None:
    Path("model.hlo").write_text(deep(3))
    words = ["model.hlo", "--framework=XLA", "--target=trn2", "--lnc", cores, "-O1"]
    assert os.environ.get("PYTHONHASHSEED") != "1"
    assert main(["compile", *words, "--output", "here.neff"]) == 0
    done = process("compile", *words, "--output", "there.neff", PYTHONHASHSEED="1")
    assert done.returncode == 0, done.stderr
    assert Path("here.neff").read_bytes() == Path("there.neff").read_bytes()


def test_an_interrupt_leaves_what_was_there() -> None:
    """No output, and no part of a program among those kept. It comes when a second is left, so that
    a loaded machine does not finish first."""
    Path("model.hlo").write_text(deep(16))
    Path("file.neff").write_bytes(b"before")
    words = ["compile", "model.hlo", "--framework", "XLA", "--target", "trn2", "--verbose", "info"]
    started = subprocess.Popen(
        [*COMMAND, *words, "--cache_dir", "kept"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
        # Shells let what runs behind others ignore interrupts, and children inherit that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    assert started.stdout is not None
    for line in started.stdout:
        if line.startswith("read"):
            started.send_signal(signal.SIGINT)
            break
    started.stdout.read()
    assert started.wait(60) == 130
    assert Path("file.neff").read_bytes() == b"before"
    assert not any(path.is_file() for path in Path("kept").rglob("*"))
    assert process(*words, "--cache_dir", "kept").returncode == 0
    assert Path("file.neff").read_bytes() == kept("kept")[0].read_bytes()


def test_infinities_are_saturated_on_request() -> None:
    """On trn1, whose tensor engine multiplies to transpose; results: `test_compile_options`."""
    programs: dict[tuple[str, bool], bytes] = {}
    for target in ("trn1", "trn2"):
        for words in ([], ["--enable-saturate-infinity"]):
            assert compiling(*words, text=LAYER, target=target) == 0
            programs[target, bool(words)] = Path("file.neff").read_bytes()
    assert programs["trn1", False] != programs["trn1", True]
    assert programs["trn2", False] == programs["trn2", True]
