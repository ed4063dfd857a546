"""Markdown of the reference pages."""

from __future__ import annotations

import pytest

from nki.row_pages.markdown import cited, table

SITE = "https://awsdocs-neuron.readthedocs-hosted.com/en/latest/"
FILES = "https://github.com/aws-neuron/aws-neuron-sdk/blob/master/"


def test_bars_and_line_breaks_do_not_break_a_table() -> None:
    text = table(("a", "b"), [("x | y", "two\nlines"), (1, "")])
    assert text.splitlines() == ["| a | b |", "|---|---|", "| x \\| y | two lines |", "| 1 |  |"]
    assert table(("a",), []) == ""


@pytest.mark.parametrize(
    ("document", "url"),
    [
        ("nki/api/nki.isa.rst#nki.isa.memset", f"{SITE}nki/api/generated/nki.isa.memset.html"),
        ("nki/api/nki.api.shared.rst#a-b", f"{SITE}nki/api/nki.api.shared.html#a-b"),
        ("nki/deep-dives/nki-dge.rst", f"{SITE}nki/deep-dives/nki-dge.html"),
        ("nki/api/nki/isa/__init__.py", f"{FILES}nki/api/nki/isa/__init__.py"),
    ],
)
def test_documents_of_the_sdk_are_links(document: str, url: str) -> None:
    assert cited(document) == f"[SDK {document}]({url})"
    assert cited(f"SDK {document}, and ARCH2") == f"[SDK {document}]({url}), and ARCH2"


def test_other_documents_are_no_links() -> None:
    assert cited("ARCH2") == "ARCH2" and cited("") == ""
