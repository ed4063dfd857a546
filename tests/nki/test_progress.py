"""Progress of long commands, as a terminal shows it: recorded through a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from nki import progress
from nki.cli import application
from nki.pipeline import STAGES

ROOT = Path(__file__).resolve().parents[2]

KERNEL = """
import time
import nki, nki.isa as nisa, nki.language as nl

@nki.jit
def slow(a):
    time.sleep(1.6)
    tile = nl.load(a)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out
"""

NKI = "from nki.cli import main; raise SystemExit(main())"
NEURONX_CC = "from graph_compiler.command import main; raise SystemExit(main())"
AT_ONCE = "from nki import progress; progress.DELAY = 0; progress._PER_SECOND = 200; "

GRAPH = """HloModule m
ENTRY e {
  x = f32[128,128] parameter(0)
  w = f32[128,4096] parameter(1)
  y = f32[128,4096] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[128,4096] exponential(y)
  ROOT r = f32[128,4096] multiply(z, y)
}
"""
"""Has more than one plan, as the right operand takes 16 KiB of a partition."""


def recorded(
    code: str, *arguments: str, columns: int = 100, interrupt: str = "", **environment: str
) -> tuple[int, str]:
    """Exit code and all that a command writes on a terminal. Ctrl-C once it has `interrupt`."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    kept = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")
    }
    variables = {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **environment}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=variables,
        start_new_session=True,
        close_fds=True,
        # Shells let what runs behind others ignore interrupts, and children inherit that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    os.close(theirs)
    read = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        read += piece
        if interrupt and interrupt in read.decode(errors="ignore"):
            process.send_signal(signal.SIGINT)
            interrupt = ""
    os.close(ours)
    return process.wait(), read.decode()


def screen(written: str) -> list[str]:
    """The lines that a terminal shows at the end, of what was written."""
    lines, row, column = [""], 0, 0
    for match in re.finditer(r"\x1b\[\??([\d;]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n])", written):
        number, kind, home, down, character = match.groups()
        if kind == "K":
            lines[row] = "" if number == "2" else lines[row][:column]
        elif kind == "A":
            row -= int(number or 1)
        elif kind in ("m", "h", "l"):
            pass
        elif home:
            column = 0
        elif down:
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif character:
            lines[row] = lines[row].ljust(column)[:column] + character + lines[row][column + 1 :]
            column += 1
        else:
            raise AssertionError(match.group())
    return lines


def shown(written: str) -> str:
    """What was written, without controls."""
    return re.sub(r"\x1b\[\??[\d;]*[A-Za-z]", "", written)


@pytest.fixture
def file(tmp_path) -> str:
    path = tmp_path / "slow.py"
    path.write_text(KERNEL)
    return f"{path}:slow"


@pytest.mark.parametrize("columns", [60, 200])
def test_progress_appears_and_leaves_nothing(file, columns) -> None:
    code, written = recorded(
        NKI, "run", file, "--input", "a=ones(128,8):float32", columns=columns, NO_COLOR="1"
    )
    assert code == 0
    assert re.search(r"\d s  trace", shown(written))
    assert not re.search(r"\x1b\[[\d;]*3\d[\d;]*m", written)  # no colour
    end = screen(written)
    assert not any("trace" in line or re.search(r"\d s  ", line) for line in end)
    assert any("output0" in line for line in end)
    assert all(len(line) <= columns for line in end)
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1  # the cursor is back


def test_an_interrupted_command_ends_clean(tmp_path) -> None:
    (tmp_path / "slow.py").write_text(KERNEL.replace("1.6", "60"))  # until it is interrupted
    file = f"{tmp_path}/slow.py:slow"
    given = ("run", file, "--input", "a=ones(128,8):float32")
    code, written = recorded(NKI, *given, interrupt="trace")
    assert code == 130
    assert [line.rstrip() for line in screen(written) if line.strip()] in (
        ["interrupted"],
        ["^Cinterrupted"],
    )
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1


PROFILE = (
    "profile",
    f"{ROOT}/tutorials/matmul_kernels.py:tiled",
    *("--input", "lhsT=normal(512,512):bfloat16"),
    *("--input", "rhs=normal(512,512):bfloat16", "--target", "trn2"),
)


def test_passes_have_numbers_and_advice_is_counted() -> None:
    code, written = recorded(AT_ONCE + NKI, *PROFILE, columns=60)
    assert code == 0
    stage = rf"\w+ \(\d+ of {len(STAGES) - 1}\)"
    assert re.search(rf"({stage}|proof that nothing races|run|timing)", shown(written))
    assert re.search(r"advice, change \d+", shown(written))
    assert not any("advice, change" in line for line in screen(written))


def test_a_narrow_terminal_and_one_without_colour_show_every_figure(capsys) -> None:
    """All that the report has where it is piped."""
    assert application.run(list(PROFILE)) == 0
    piped = figures(capsys.readouterr().out)
    assert len(piped) > 100
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        code, written = recorded(NKI, *PROFILE, columns=60, **environment)
        assert code == 0
        assert not re.search(r"\x1b\[[\d;]*3\d[\d;]*m", written)  # no colour
        assert piped - figures("\n".join(screen(written))) == Counter()


def figures(text: str) -> Counter[str]:
    """The numbers of a report, and how often each is there."""
    return Counter(re.findall(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]\d+)?", text))


def test_graphs_have_the_same_progress(tmp_path) -> None:
    (tmp_path / "m.txt").write_text(GRAPH)
    given = ("compile", str(tmp_path / "m.txt"), "--framework", "XLA", "--target", "trn2")
    places = ("--output", str(tmp_path / "m.neff"), "--logfile", str(tmp_path / "log"))
    code, written = recorded(
        AT_ONCE + NEURONX_CC, *given, *places, "--no_cache", "--verbose", "info"
    )
    assert code == 0, written
    assert re.search(r"\d s  plan 1 of 2: \w+", shown(written))
    assert re.search(r"\d s  plan 2 of 2 \(right 8192\): \w+", shown(written))
    assert any(re.search(r"schedule: \d+\.\d+ s", line) for line in screen(written))
    assert not any(re.search(r"^ *\d+ s  ", line) for line in screen(written))


def test_graphs_that_run_on_the_host_have_it_too(tmp_path) -> None:
    (tmp_path / "m.txt").write_text(GRAPH)
    given = ("hlo", "run", str(tmp_path / "m.txt"), "--compare", "reference")
    code, written = recorded(AT_ONCE + NKI, *given)
    assert code == 0, written
    assert re.search(r"\d s  run \((host|reference)\)", shown(written))
    assert not any(re.search(r"^ *\d+ s  ", line) for line in screen(written))


def test_nothing_is_shown_where_output_is_piped(file) -> None:
    command = [sys.executable, "-c", NKI, "run", file, "--input", "a=ones(128,8):float32"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    before = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=variables)
    assert time.monotonic() - before > 1
    assert (done.returncode, done.stderr) == (0, "")
    assert "trace" not in done.stdout and "\x1b" not in done.stdout


def test_a_debugger_has_the_terminal_for_itself(tmp_path) -> None:
    path = tmp_path / "stops.py"
    path.write_text(KERNEL.replace("    time.sleep(1.6)\n", "    breakpoint()\n"))
    hook = "import sys, time; sys.breakpointhook = lambda: (time.sleep(0.5), print('stopped')); "
    given = ("run", f"{path}:slow", "--input", "a=ones(128,8):float32")
    code, written = recorded(AT_ONCE + hook + NKI, *given)
    assert code == 0 and "stopped" in written
    assert "\x1b[?25l" not in written


def test_a_stage_goes_with_what_it_was_part_of() -> None:
    display = progress.Display()

    def line() -> str:
        return display._line().plain.partition("s  ")[2]

    display.show("timing")
    with display.within("advice"):
        assert line() == "advice"
        with display.within("advice, change 1"):
            display.show("schedule (9 of 11)")
            assert line() == "advice, change 1: schedule (9 of 11)"
        assert line() == "advice"
    assert line() == "timing"
    display.close()
