"""The built site in a browser: python -m sphinx -W docs build/site, then --site build/site."""

from __future__ import annotations

import functools
import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urljoin

import pytest
from browser import browser

ROOT = Path(__file__).resolve().parents[2]


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the site is served: searching needs a server, as files may not load others."""
    folder: Path | None = request.config.getoption("--site")
    if folder is None:
        pytest.skip("no built site given: --site PATH")
    assert (folder / "index.html").is_file(), f"{folder} holds no site"
    handler = functools.partial(_Silent, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_every_internal_link_leads_to_a_page_and_its_heading(address: str) -> None:
    """All pages that can be reached from the first one, and the anchors that links name."""
    with browser() as opened:
        page = opened.new_page()
        found: dict[str, set[str]] = {}
        wanted: list[tuple[str, str, str]] = []
        queue = [address + "index.html"]
        while queue:
            here = queue.pop()
            if here in found:
                continue
            answer = page.goto(here, wait_until="commit")
            assert answer is not None and answer.ok, here
            page.wait_for_load_state("domcontentloaded")
            found[here] = set(page.eval_on_selector_all("[id]", "all => all.map(e => e.id)"))
            for link in page.eval_on_selector_all(
                "a[href]", "all => all.map(e => e.getAttribute('href'))"
            ):
                target, anchor = urldefrag(urljoin(here, link))
                if target.startswith(address) and target.endswith(".html"):
                    wanted.append((here, target, anchor))
                    queue.append(target)
    assert len(found) > 100
    dead = [
        f"{here} -> {target}#{anchor}"
        for here, target, anchor in wanted
        if anchor and anchor not in found[target]
    ]
    assert dead == []


SEARCHES = {
    "nc_matmul": "nc_matmul",
    "conversion": "Words of a report",
    "together": "Reading a profile",
    "least time": "Bound and least time",
    "full rate": "Reading a profile",
    "short rows": "Reading a profile",
    "neighbouring rows": "Choose engines and tile sizes",
    "hoist": "Words of a report",
    "hoistable work": "Reading a profile",
    "mask": "Choose engines and tile sizes",
    "spill": "Words of a report",
    "separate sum": "Reading a profile",
    "safetensors": "The nki command",
    "progress": "The nki command",
    "rms norm": "Tutorial 3",
}
"""What somebody looks for, and a title among the first twenty that the site's search finds."""


def test_search_finds_operations_and_words_of_a_report(address: str) -> None:
    with browser() as opened:
        page = opened.new_page()
        mistakes: list[str] = []
        page.on("pageerror", lambda error: mistakes.append(str(error)))
        found: dict[str, list[str]] = {}
        for words in SEARCHES:
            page.goto(address + "index.html")
            page.fill("input[name=q]", words)
            page.keyboard.press("Enter")
            # Results come one after another; behind the last the page says how many there are.
            page.wait_for_function(
                "document.querySelector('#search-results')?.innerText.includes('Search finished')"
            )
            found[words] = page.eval_on_selector_all(
                "#search-results li a", "all => all.map(e => e.text)"
            )
    missing = {
        words: found[words][:20]
        for words, title in SEARCHES.items()
        if not any(title in one for one in found[words][:20])
    }
    assert missing == {} and mistakes == []


_OUTPUTS = """cells => cells.map(cell => ({
    code: cell.querySelector(".cell_input")?.innerText ?? "",
    text: cell.querySelector(".cell_output")?.innerText ?? "",
    errors: [...cell.querySelectorAll(".stderr, .traceback")].map(e => e.innerText),
    pictures: cell.querySelectorAll(".cell_output svg").length,
}))"""

TUTORIALS = sorted((ROOT / "tutorials").glob("[0-9][0-9]_*.py"))
_OF_LIBRARIES = {
    path.stem for path in TUTORIALS if "    raise SystemExit(" in path.read_text(encoding="utf-8")
}
"""Those that end at once without a library, and so are executed where it is installed."""


@pytest.mark.parametrize("name", [path.stem for path in TUTORIALS])
def test_a_tutorial_was_executed_as_a_notebook(
    address: str, name: str, request: pytest.FixtureRequest
) -> None:
    """What its cells print is on its page, with the report of a profile, and nothing on stderr."""
    if name in _OF_LIBRARIES and not request.config.getoption("--all-tutorials"):
        pytest.skip("needs jax or torch where the site is built: --all-tutorials")
    with browser() as opened:
        page = opened.new_page()
        page.goto(f"{address}tutorials/{name}.html")
        cells = page.eval_on_selector_all("article div.cell", _OUTPUTS)
    assert len(cells) >= 5
    assert [error for cell in cells for error in cell["errors"]] == []
    printing = [cell for cell in cells if re.search(r"^print\(", cell["code"], re.MULTILINE)]
    assert [cell["code"] for cell in printing if not cell["text"]] == []
    text = "\n".join(cell["text"] for cell in cells)
    assert "where the time goes" in text and re.search(r"\bbound +\w", text)
    assert "ipykernel" not in text and "/tmp/" not in text


def test_a_notebook_shows_pictures(address: str) -> None:
    with browser() as opened:
        page = opened.new_page()
        page.goto(address + "tutorials/01_tensor_add.html")
        cells = page.eval_on_selector_all("article div.cell", _OUTPUTS)
        shown = {cell["code"].strip(): cell for cell in cells}
        assert shown["metrics"]["pictures"] == 1 and "VectorE" in shown["metrics"]["text"]
        assert "add(a, b)" in shown["add"]["text"]
