"""What the command `neuronx-cc` writes: programs, logs, reports, tile IR; whole, or nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from neuronx_command import DOT, NEGATE, WRONG, compiling, deep, kept, log

from graph_compiler.command import main
from graph_compiler.command.arguments import OPTIONS

pytestmark = pytest.mark.usefixtures("own_folder")


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
