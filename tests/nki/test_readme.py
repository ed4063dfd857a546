"""The README's first screen: its command prints what the page shows, word for word."""

import json
import re
import shlex
from pathlib import Path

from nki.cli import main

README = Path(__file__).resolve().parents[2] / "README.md"


def blocks():
    return re.findall(r"^```\n(.*?)^```$", README.read_text(), re.M | re.S)


def test_the_main_command_prints_what_the_readme_shows(monkeypatch, capsys, tmp_path):
    command, shown = blocks()[:2]
    monkeypatch.chdir(README.parent)
    words = shlex.split(command.split("&&")[1].replace("\\\n", " "))
    trace = tmp_path / words[-1]
    assert words[0] == "nki" and words[-2] == "--perfetto"
    assert main([*words[1:-1], str(trace)]) == 0
    printed = capsys.readouterr().out.replace(str(trace), words[-1])
    assert printed.strip() == shown.strip()
    assert json.loads(trace.read_text())["traceEvents"]
