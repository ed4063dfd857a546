"""Names that later versions dropped."""

from __future__ import annotations

import pytest

import nki.isa as nisa
import nki.language as nl
from nki.superseded.removed import KEYWORDS, REMOVED, advice


@pytest.mark.parametrize("name", sorted(REMOVED))
def test_no_name_that_is_gone_is_there(name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(nl, name)
    assert REMOVED[name] in str(caught.value) and name not in nl.__all__


def test_no_call_takes_a_keyword_that_is_gone() -> None:
    import inspect

    for name in nisa.__all__:
        value = getattr(nisa, name)
        if inspect.isfunction(value):
            assert not KEYWORDS.keys() & inspect.signature(value).parameters.keys(), name


def test_what_is_advised_exists() -> None:
    import re

    texts = [*REMOVED.values(), *KEYWORDS.values()]
    for text in texts:
        for module, name in re.findall(r"\b(nl|nisa)\.(\w+)", text):
            if f"{module}.{name}" != "nl.par_dim":
                assert hasattr({"nl": nl, "nisa": nisa}[module], name), text


def test_other_names_have_no_advice() -> None:
    assert advice("add") is None and advice("nothing") is None
