"""The built site in a browser: python -m sphinx -W docs build/site, then --site build/site."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urljoin

import pytest
from browser import browser


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


def test_search_finds_an_operation(address: str) -> None:
    with browser() as opened:
        page = opened.new_page()
        mistakes: list[str] = []
        page.on("pageerror", lambda error: mistakes.append(str(error)))
        page.goto(address + "index.html")
        page.fill("input[name=q]", "nc_matmul")
        page.keyboard.press("Enter")
        page.wait_for_selector("#search-results li a")
        titles = page.eval_on_selector_all("#search-results li a", "all => all.map(e => e.text)")
        assert any("nc_matmul" in title for title in titles)
        assert mistakes == []


def test_notebooks_show_what_they_print(address: str) -> None:
    with browser() as opened:
        page = opened.new_page()
        page.goto(address + "tutorials/01_tensor_add.html")
        assert "where the time goes" in page.inner_text("article")
