"""The command `nki disasm`: programs as text."""

from __future__ import annotations

from pathlib import Path

from command_lines import compiled, run, run_json


def test_disassembly_can_be_limited_to_an_engine(file, capsys) -> None:
    container = compiled(file, capsys)
    code, whole, _ = run(capsys, "disasm", container)
    assert code == 0 and whole.startswith(".program") and ".stream sync" in whole
    code, part, _ = run(capsys, "disasm", container, "--engine", "sync")
    assert code == 0 and "DmaCopy" in part and ".stream" not in part
    assert all(line.strip() in whole for line in part.splitlines()[1:])
    code, out, err = run(capsys, "disasm", container, "--engine", "pool")
    assert code == 2 and "gpsimd" in err and out == ""


def test_disassembly_shows_the_loops(file, capsys) -> None:
    container = compiled(file, capsys)
    code, out, _ = run(capsys, "disasm", container, "--loops")
    assert code == 0 and "; core 0, sync: " in out and "DmaCopy" in out
    code, one, _ = run(capsys, "disasm", container, "--loops", "--engine", "gpsimd")
    assert code == 0 and one.startswith("; core 0, gpsimd: ") and one.strip() in out


def test_a_damaged_container_is_refused(file, capsys) -> None:
    path = Path(compiled(file, capsys))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    code, out = run_json(capsys, "disasm", str(path))
    assert code == 5 and out["error"]["code"] == "container-corrupt"
    path.write_bytes(data[:500])
    code, out = run_json(capsys, "run", str(path), "--input", "a=ones(128,64):bfloat16")
    assert code == 5 and out["error"]["code"] == "container-truncated"
