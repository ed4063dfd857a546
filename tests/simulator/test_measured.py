"""A profile beside an export that is written by hand, and under the official names."""

from __future__ import annotations

import json

import numpy as np
import pytest
from matmul_kernels import one_tile

import nki
from nki.cli import main
from simulator.profile.measured import against
from simulator.timing import simulate

A, B = np.ones((128, 128), np.float32), np.ones((128, 512), np.float32)


@pytest.fixture(scope="module")
def timed():
    program = nki.compile(one_tile, A, B, target="trn2").program
    return program, simulate(program)


def exported(tmp_path, timed, names):
    """A measured run: products twice as long as modelled, one copy more than in the model."""
    program, timeline = timed
    start, length = names
    rows = []
    for track in timeline.cores[0].tracks:
        if track.queue >= 0:
            continue
        for begin, end, index, _ in track.spans:
            place = program.locations[program.cores[0].streams[track.engine][index].location]
            factor = 2 if track.engine.name == "tensor" else 1
            rows.append(
                {
                    start: 5000 + begin,
                    length: factor * (end - begin),
                    "engine": track.engine.name,
                    "nki_source_location": f"{place.file}:{place.line}",
                }
            )
    copies = [row for row in rows if row["engine"] == "vector"]
    rows.append({**copies[0], start: copies[0][start] + 1e5})
    path = tmp_path / "measured.json"
    path.write_text(json.dumps({"instruction": rows}))
    return path


@pytest.mark.parametrize("names", [("start_ts", "duration_ns"), ("timestamp", "duration")])
def test_instructions_are_matched_by_engine_and_line(timed, tmp_path, names):
    found = against(str(exported(tmp_path, timed, names)), *timed)
    for pair in found.pairs:
        if pair.modelled_ns is not None:
            factor = 2 if pair.engine == "tensor" else 1
            assert pair.measured_ns == pytest.approx(factor * pair.modelled_ns)
    assert {"tensor", "vector"} <= {pair.engine for pair in found.pairs}
    assert [p.engine for p in found.pairs if p.modelled_ns is None] == ["vector"]
    assert found.measured_total_ns > 1e5


@pytest.mark.parametrize("text", ["", "[]", '{"instruction": 3}', '{"instruction": [{}]}'])
def test_what_is_no_export_is_refused(timed, tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(nki.NeuronError, match="no profile of instructions"):
        against(str(path), *timed)


def test_official_names_follow_their_definitions():
    metrics = nki.profile(one_tile, target="trn2")(A, B)[1]
    found = metrics.to_dict()["summary"]
    flops = 2 * 128 * 128 * 512
    assert found["is_simulation"] is True
    assert found["hardware_flops"] == flops
    moved = A.nbytes + B.nbytes + 128 * 512 * 4
    assert found["hbm_read_bytes"] + found["hbm_write_bytes"] == moved
    assert found["mm_arithmetic_intensity"] == pytest.approx(flops / moved)
    assert found["total_time"] == pytest.approx(metrics.total_ns * 1e-9)
    for name in found:
        assert name in metrics.text() and name in metrics._repr_html_()


def test_the_balance_of_trn1_is_the_published_one():
    """A profile of trn1 hardware that was published has 223.8."""
    metrics = nki.profile(one_tile, target="trn1")(A, B)[1]
    ratio = metrics.to_dict()["summary"]["peak_flops_bandwidth_ratio"]
    assert ratio == pytest.approx(223.8, abs=0.05)


def test_the_command_compares_writes_a_page_and_reads_a_measurement(timed, tmp_path, capsys):
    import matmul_kernels

    measured, page = exported(tmp_path, timed, ("start_ts", "duration_ns")), tmp_path / "p.html"
    file = matmul_kernels.__file__
    inputs = ["--input", "lhsT=normal(128,128):float32", "--input", "rhs=normal(128,512):float32"]
    command = ["profile", f"{file}:one_tile", *inputs, "--target", "trn2", "--html", str(page)]
    command += ["--compare", f"{file}:tiled@trn1", "--against", str(measured), "--json"]
    assert main(command) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["compared"]["before"]["target"] == "trn1"
    assert data["compared"]["after"]["total_ns"] == data["profile"]["total_ns"]
    assert data["against"]["measured_total_ns"] > 1e5
    assert "tiled on trn1" in page.read_text()
