"""HLO text that is wrong, damaged or hostile: errors with line and instruction, in bounded time."""

from __future__ import annotations

import contextlib
import random
import time

import pytest
from hlo_texts import CALLEE, X

from graph_compiler import parse_text, print_text
from graph_compiler.hlo.text_scan import is_braced, split
from graph_compiler.hlo.text_values import parse_shape
from isa.errors import NeuronError

GOOD = f"""HloModule m, entry_computation_layout={{(f32[4,6]{{1,0}})->f32[4,6]{{1,0}}}}
{CALLEE}
ENTRY main {{
  {X}
  c = f32[4,6]{{1,0}} constant({{ {", ".join(["{ 1, 2, 3, 4, 5, nan }"] * 4)} }})
  y = f32[4,6]{{1,0}} add(x, c), metadata={{op_name="a/b" source_file="m.py" source_line=3}}
  r = f32[] reduce(y, c), dimensions={{0,1}}, to_apply=f
  ROOT t = (f32[4,6]{{1,0}}, f32[]) tuple(y, r), sharding={{{{replicated}}, {{manual}}}}
}}
"""


def refused(text: str) -> NeuronError:
    with pytest.raises(NeuronError) as caught:
        parse_text(text)
    return caught.value


@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    [
        ("add(x, c)", "add(x, q)", "hlo-invalid", ["line 8", "'y'", "'q'"]),
        ("to_apply=f", "to_apply=h", "hlo-invalid", ["line 9", "'r'", "no computation 'h'"]),
        ("dimensions={0,1}", "dimensions={0,one}", "hlo-syntax", ["line 9", "'one'"]),
        ("dimensions={0,1}", "dimension={0,1}", "hlo-syntax", ["unknown attribute 'dimension'"]),
        ("f32[4,6]{1,0} add", "f33[4,6]{1,0} add", "hlo-syntax", ["line 8", "shape"]),
        ("f32[4,6]{1,0} add", "f32[4,6]{1,1} add", "hlo-syntax", ["no order of 2 dimensions"]),
        ("add(x, c)", "Add(x, c)", "hlo-syntax", ["opcode"]),
        ("5, nan }", "5, nan, 7 }", "hlo-syntax", ["line 7", "28 elements for f32[4,6]"]),
        ("add(x, c)", "add(y, c)", "hlo-cycle", ["'y'"]),
        ("r = f32[]", "y = f32[]", "hlo-invalid", ["second instruction 'y'"]),
        ("ENTRY main", "ENTRY f", "hlo-invalid", ["second computation 'f'"]),
        ("f32[4,6]{1,0} add", "f32[99999999999999999999]{0} add", "hlo-syntax", ["integer"]),
        ("{{replicated}", "{{replicated?}", "hlo-syntax", ["line 10", "sharding"]),
        ("HloModule m", "Module m", "hlo-syntax", ["line 1"]),
        ("to_apply=f", "to_apply=f /*@ id=x */", "hlo-syntax", ["line 9"]),
        ("to_apply=f", 'to_apply=f /*@ fields="!!" */', "hlo-syntax", ["line 9"]),
        ("to_apply=f", "to_apply=" + "{" * 100, "hlo-too-large", ["64 brackets"]),
    ],
)
def test_mistakes_are_named_with_their_line(
    old: str, new: str, code: str, words: list[str]
) -> None:
    assert parse_text(GOOD)
    assert old in GOOD
    error = refused(GOOD.replace(old, new))
    assert error.code == code
    assert all(word in error.what for word in words), error.what


def test_every_cut_is_refused() -> None:
    end = len(GOOD.rstrip())
    for length in range(0, end, 3):
        assert refused(GOOD[:length]).code in {"hlo-truncated", "hlo-syntax"}


def test_damaged_text_ends_in_catalogue_errors() -> None:
    generator = random.Random(1)
    outcomes = set()
    start = time.process_time()
    for _ in range(600):
        text = list(GOOD)
        for _ in range(generator.choice((1, 2, 8))):
            place = generator.randrange(len(text))
            text[place] = generator.choice('{}()[],="%/*\\0123456789abfx_->\n \0é')
        if generator.random() < 0.3:
            first, second = sorted(generator.sample(range(len(text)), 2))
            text[first:first] = text[first:second]
        try:
            module = parse_text("".join(text))
        except NeuronError as error:
            outcomes.add(error.code)
        else:
            outcomes.add("read")
            print_text(module)
    assert {"read", "hlo-syntax", "hlo-invalid"} <= outcomes
    assert time.process_time() - start < 60


@pytest.mark.parametrize(
    "text",
    [
        "HloModule m\n" + "{" * 100_000,
        "HloModule m\nENTRY e { x = " + "(" * 50_000,
        "HloModule m, a=" + "[" * 50_000,
        "HloModule m\nENTRY e { x = f32[] constant(" + "9" * 100_000 + ") }",
        "HloModule m\nENTRY e { x = f32[" + "1," * 50_000 + "1] parameter(0) }",
        "HloModule m\n/*" + "*" * 100_000,
        "HloModule m\n" + '"' * 100_001,
        "HloModule m\nENTRY e { x = f32[1000000000000]{0} constant({1, 2}) }",
        "HloModule m" + ", a" * 50_000,
    ],
)
def test_hostile_text_takes_no_time(text: str) -> None:
    start = time.process_time()
    with contextlib.suppress(NeuronError):
        parse_text(text)
    assert time.process_time() - start < 5


def test_pieces_of_text() -> None:
    assert split('a, {b, c}, "d, }", /* e, */ f') == ["a", "{b, c}", '"d, }"', "/* e, */ f"]
    assert split("") == [] and split("a,") == ["a", ""]
    assert is_braced('{"a": [1, {}]}') and not is_braced("{a}{b}") and not is_braced("{a")
    with pytest.raises(ValueError):
        parse_shape("f32[2]{0:X(1)}")
