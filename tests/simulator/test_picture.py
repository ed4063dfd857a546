"""Pictures: every span is drawn where it was, every tensor where it lies and when."""

from __future__ import annotations

import sys

import pytest
from timing_programs import matmul_loads_inside

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError
from simulator.profile import plot, write_plot
from simulator.timing import simulate


@pytest.fixture
def built():
    pytest.importorskip("matplotlib", reason="needs opennki[viz]")
    return matmul_loads_inside(2, 16)


def boxes(collection):
    """(left, width) of the bars of one row."""
    corners = [path.get_extents() for path in collection.get_paths()]
    return [(box.x0, box.width) for box in corners]


def test_every_span_is_a_bar(built):
    timeline = simulate(built)
    over_time, *_ = plot(built, timeline).axes
    tracks = [track for track in timeline.cores[0].tracks if track.spans]
    labels = [label.get_text() for label in over_time.get_yticklabels()]
    drawn = dict(zip(labels, map(boxes, over_time.collections)))
    assert len(drawn) == len(tracks)
    for track in tracks:
        bars = drawn[track.name if track.queue < 0 else f"queue {track.name}"]
        expected = [(s[0] / 1e3, (s[1] - s[0]) / 1e3) for s in track.spans]
        assert bars == [pytest.approx(bar, abs=1e-6) for bar in expected]


def test_tensors_lie_at_their_bytes_from_their_beginning_on():
    pytest.importorskip("matplotlib", reason="needs opennki[viz]")

    @nki.jit(target="trn2")
    def product(a):
        left = nl.load(a)
        total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=total, stationary=left[:, :128], moving=left)
        done = nl.copy(total)
        out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, done)
        return out

    program = nki.compile(product, nki.TensorSpec((128, 512), nl.float32)).program
    timeline = simulate(program)
    _, *memories = plot(program, timeline).axes
    known = {one.name: one for one in program.cores[0].storages}
    found = {}
    for axes, kind in zip(memories, ("sbuf", "psum")):
        rows = [box for row in axes.collections for box in extents(row)]
        own = sorted((one for one in known.values() if one.memory == kind), key=lambda o: o.offset)
        assert sorted((bottom, height) for _, bottom, _, height in rows) == [
            (one.offset / 1024, one.bytes_per_partition / 1024) for one in own
        ]
        found |= {text.get_text().strip(): text.get_position()[0] for text in axes.texts}
    assert found.keys() == known.keys()
    assert found["left"] == 0.0
    assert found["left"] < found["total"] < found["done"] < timeline.total_ns / 1e3


def extents(collection):
    """(left, bottom, width, height) of the boxes of a row."""
    boxes = [path.get_extents() for path in collection.get_paths()]
    return [(box.x0, box.y0, box.width, box.height) for box in boxes]


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
