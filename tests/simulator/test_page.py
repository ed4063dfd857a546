"""The HTML page of a profile, opened and used in headless Chromium; and its columns."""

from __future__ import annotations

import json
import re
import resource
import shutil
import subprocess

import numpy as np
import pytest
from matmul_kernels import blocked, hoisted
from timing_programs import matmul_loads_inside

import nki
import nki.isa as nisa
import nki.language as nl
from isa.enums import DgeMode
from simulator.profile import profile
from simulator.profile.page import write_html
from simulator.timing import simulate

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)

USE = """
<script>
(async () => {
  while (!report.ready) await new Promise((go) => setTimeout(go, 20));
  const found = {}, canvas = document.getElementById("timeline");
  const row = (name) => report.tracks.findIndex((track) => track.name === name);
  const dark = (id) => {
    const one = document.getElementById(id);
    const pixels = one.getContext("2d").getImageData(0, 0, one.width, one.height).data;
    return pixels.reduce((sum, value) => sum + (value > 0), 0);
  };
  found.tracks = report.tracks.map((track) => [track.name, track.start.length]);
  found.drawn = ["timeline", "memory0", "memory1", "roofline"].map(dark);
  const track = report.tracks[row("vector")], whole = report.view.slice();
  document.getElementById("closer").click();
  found.closer = (report.view[1] - report.view[0]) / (whole[1] - whole[0]);
  document.getElementById("all").click();
  found.all = report.view[1] === whole[1] && report.view[0] === 0;
  canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -1, bubbles: true, cancelable: true }));
  found.wheel = (report.view[1] - report.view[0]) / (whole[1] - whole[0]);
  document.getElementById("all").click();
  const middle = track.start[0] + track.length[0] / 2;
  report.pick(150 + middle / whole[1] * (canvas.clientWidth - 150), 22 + 20 * row("vector") + 10);
  found.details = document.getElementById("details").innerText;
  found.arrows = report.arrows.map(([one, other]) => [one.track.name, other.track.name]);
  found.names = report.data.names;
  const tall = canvas.height;
  document.getElementById("semaphores").click();
  found.taller = canvas.height > tall;
  found.source = document.getElementById("source").innerText;
  found.comparison = document.getElementById("comparison").innerText;
  found.report = document.getElementById("report").innerText;
  const out = document.createElement("pre");
  out.id = "found";
  out.textContent = JSON.stringify(found);
  document.body.replaceChildren(out);
})().catch((error) => { document.body.textContent = String(error.stack); });
</script></body>"""


@pytest.fixture(scope="module")
def profiles():
    specs = [nki.TensorSpec((512, width), "float32") for width in (512, 1024)]
    found = []
    for kernel in (hoisted, blocked):
        program = nki.compile(kernel, *specs, target="trn2").program
        timeline = simulate(program)
        found.append((program, timeline, profile(program, timeline)))
    return found


def in_browser(page, folder):
    """What the script of a page leaves as JSON when headless Chromium has opened it."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1300,900"]
    command += [f"--user-data-dir={folder / 'user'}", "--virtual-time-budget=20000"]
    done = subprocess.run(
        [*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120
    )
    match = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(match[1].replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"))


def test_the_page_is_used_in_a_browser(profiles, tmp_path):
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed: the page was not opened")
    (_, _, before), (program, timeline, after) = profiles
    page = tmp_path / "page.html"
    write_html(page, program, timeline, after, before)
    page.write_text(page.read_text().replace("</body>", USE))
    found = in_browser(page, tmp_path)
    tracks = [track for track in timeline.cores[0].tracks if track.spans]
    assert sorted(count for _, count in found["tracks"]) == sorted(len(one.spans) for one in tracks)
    assert all(found["drawn"])
    assert found["closer"] == pytest.approx(0.5)
    assert found["wheel"] == pytest.approx(0.8)
    assert found["all"] and found["taller"]
    assert "TensorCopy on vector" in found["details"]
    assert "total, src=accumulator" in found["details"]
    assert ["tensor", "vector"] in found["arrows"]  # PSUM is read when products are there
    assert {"accumulator", "stationary"} & set(found["names"])
    assert "nisa.nc_matmul(" in found["source"]
    assert "hoisted on trn2" in found["comparison"]
    assert after.kernel in found["report"]


OPENED = """
<script>
(async () => {
  while (!report.ready) await new Promise((go) => setTimeout(go, 5));
  const out = document.createElement("pre");
  out.id = "found";
  const spans = report.tracks.reduce((sum, track) => sum + track.start.length, 0);
  out.textContent = JSON.stringify({ spans });
  document.body.replaceChildren(out);
})().catch((error) => { document.body.textContent = String(error.stack); });
</script></body>"""


def test_a_page_of_a_million_instructions_opens_in_five_seconds(tmp_path):
    """Processor seconds of all of the browser, which its start takes part of, until the timeline is
    drawn; its own clock is virtual here."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed: the page was not opened")
    program = matmul_loads_inside(2560, 64, DgeMode.none)
    timeline = simulate(program)
    assert timeline.instructions > 1_000_000
    page = tmp_path / "page.html"
    write_html(page, program, timeline, profile(program, timeline))
    page.write_text(page.read_text().replace("</body>", OPENED))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = in_browser(page, tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert found["spans"] > 800_000
    assert after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime < 5


def test_the_page_needs_no_network(profiles, tmp_path):
    program, timeline, found = profiles[0]
    write_html(tmp_path / "page.html", program, timeline, found)
    text = (tmp_path / "page.html").read_text()
    assert not re.search(r"https?://|<link|<img|@import|src=\"", text.split('id="data"')[0])
    assert not re.search(r"https?://|fetch\(|import\(", text.rsplit("<script>", 1)[1])


def test_differences_add_up(profiles):
    (_, _, before), (_, _, after) = profiles
    found = after.compared_with(before).to_dict()
    change = after.total_ns - before.total_ns
    for part in ("causes", "lines"):
        total = sum(row["after_ns"] - row["before_ns"] for row in found[part])
        assert total == pytest.approx(change, rel=1e-9)


def test_a_profile_saves_its_page_and_shows_itself(tmp_path):
    a = np.ones((128, 128), np.float32), np.ones((128, 512), np.float32)
    _, found = nki.profile(hoisted)(*a)
    found.save_html(tmp_path / "page.html", found)
    assert 'id="comparison"' in (tmp_path / "page.html").read_text()
    text = re.sub(r"<[^>]*>", " ", found._repr_html_())
    cells = [c for s in found.sections() if not isinstance(s, str) for r in _rows(s) for c in r]
    import html

    missing = [cell for cell in cells if cell not in html.unescape(text)]
    assert missing == []


def _rows(section):
    return section.rows if hasattr(section, "rows") else section.items


def test_a_comparison_says_what_changed_and_why(profiles):
    (_, _, before), (_, _, after) = profiles
    found = after.compared_with(before)
    head = dict(found.sections()[0].items)
    (first, *_) = found.to_dict()["causes"]
    less = (first["before_ns"] - first["after_ns"]) / 1e3
    assert head["why"].startswith(f"{first['name']} {abs(less):,.2f} us ")
    moved = [one.dma.hbm_read_bytes + one.dma.hbm_write_bytes for one in (before, after)]
    assert (f"{100 * abs(moved[1] / moved[0] - 1):,.0f} % " in head["why"]) == (
        moved[0] != moved[1]
    )
    text = re.sub(r"<[^>]*>", " ", found._repr_html_())
    for line in found.text().split("\n\n")[1].splitlines()[2:]:
        assert line.split()[-1] in text


def test_a_comparison_tells_arguments_apart():
    @nki.jit(target="trn2")
    def scaled(a, factor=2.0, times=1):
        tile = nl.load(a)
        for _ in range(times):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    a = np.ones((128, 8), np.float32)
    _, once = nki.profile(scaled)(a)
    _, often = nki.profile(scaled)(a, times=3)
    head = dict(often.compared_with(once).sections()[0].items)
    assert (head["before"], head["after"]) == ("scaled on trn2, times=1", "scaled on trn2, times=3")
    assert "VectorE" in head["why"] and " more instructions" in head["why"]
    assert once.to_dict()["arguments"] == {"factor": 2.0, "times": 1}
    text = often.compared_with(once).text()
    assert "nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, ..." in text
    assert max(map(len, text.splitlines())) <= 100
