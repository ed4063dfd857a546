"""Pictures: every span is drawn where it was, every allocation where it lies."""

from __future__ import annotations

import sys

import pytest
from timing_programs import matmul_loads_inside, storage

from isa.errors import NeuronError
from isa.target import TARGETS
from simulator.profile import plot, write_plot
from simulator.timing import simulate


@pytest.fixture
def built():
    pytest.importorskip("matplotlib", reason="needs opennki[viz]")
    built = matmul_loads_inside(2, 16)
    built.cores[0].storages = [storage("tile", "sbuf", 0, 2048), storage("sum", "psum", 2048, 1024)]
    return built


def boxes(collection):
    """(left, width) of the bars of one row."""
    corners = [path.get_extents() for path in collection.get_paths()]
    return [(box.x0, box.width) for box in corners]


def test_every_span_is_a_bar(built):
    timeline = simulate(built)
    over_time, _ = plot(built, timeline).axes
    lanes = [lane for lane in timeline.cores[0].lanes if lane.spans]
    labels = [label.get_text() for label in over_time.get_yticklabels()]
    drawn = dict(zip(labels, map(boxes, over_time.collections)))
    assert len(drawn) == len(lanes)
    for lane in lanes:
        bars = drawn[lane.name if lane.queue < 0 else f"queue {lane.name}"]
        expected = [(s[0] / 1e3, (s[1] - s[0]) / 1e3) for s in lane.spans]
        assert bars == [pytest.approx(bar, abs=1e-6) for bar in expected]


def test_allocations_lie_at_their_bytes_psum_behind_sbuf(built):
    _, over_bytes = plot(built, simulate(built)).axes
    sbuf_kib = TARGETS[built.target].sbuf_bytes_per_partition.value // 1024
    assert [boxes(row)[0] for row in over_bytes.collections] == [(0, 2), (sbuf_kib + 2, 1)]
    assert [text.get_text().strip() for text in over_bytes.texts] == ["tile", "sum"]


@pytest.mark.parametrize("suffix, head", [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_files(tmp_path, built, suffix, head):
    path = tmp_path / f"t{suffix}"
    write_plot(path, built, simulate(built))
    assert path.read_bytes().startswith(head)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_nothing_half_written(tmp_path, built):
    timeline = simulate(built)
    for name in ("absent/t.png", "t.wrong"):
        with pytest.raises(NeuronError) as error:
            write_plot(tmp_path / name, built, timeline)
        assert error.value.code == "not-writable"
    with pytest.raises(NeuronError) as error:
        write_plot(tmp_path / "t.png", built, simulate(built, keep_spans=False))
    assert error.value.code == "missing-argument"
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_extra_is_named(built, monkeypatch):
    timeline = simulate(built)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(NeuronError) as error:
        plot(built, timeline)
    assert error.value.code == "missing-extra" and "opennki[viz]" in error.value.hint
