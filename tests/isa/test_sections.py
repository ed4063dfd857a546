"""Reports as plain text and JSON."""

from __future__ import annotations

import json

import numpy as np

from isa.sections import Notes, Prose
from nki.report import Facts, Table, json_text, plain_text


def test_plain_tables_are_aligned() -> None:
    table = Table.of("title", ("name", ">count"), [("a", 5), ("longer", 1234)])
    facts = Facts.of("", one=1, two_words="x\ny", none=None)
    assert plain_text([table, facts, "text"]) == (
        "title\n  name    count\n  a           5\n  longer   1234\n\n"
        "  one        1\n  two words  x\n             y\n\n"
        "text\n"
    )


def test_sentences_of_plain_text_are_continued() -> None:
    text = plain_text([Facts.of("", a=Prose("word " * 30)), Notes("n", ("word " * 30,))])
    assert max(map(len, text.splitlines())) <= 98
    assert text.count("word") == 60 and "\n     word" in text and "\n  word" in text


def test_json_holds_numpy_numbers_and_special_values() -> None:
    data = {"a": np.float32(1.5), "b": [np.nan, np.inf], "c": np.arange(2), "d": (True, None)}
    assert json.loads(json_text(data)) == {
        "a": 1.5,
        "b": ["nan", "inf"],
        "c": [0, 1],
        "d": [True, None],
    }
