"""What every stage of the compiler makes of small kernels, against files that people have read:
`python -m pytest tests/nki/test_stages.py --update` writes them anew, and a diff shows the rest."""

import re
from pathlib import Path

import pytest
from stage_kernels import CASES

from isa.enums import SEQUENCERS
from nki.ir.nodes import TracedKernel
from nki.pipeline import STAGES, stage_text

FILES = Path(__file__).resolve().parent / "stages"


def without_lines(text: str) -> str:
    """Without the source map, so that kernels can be moved about."""
    kept = [line for line in text.splitlines() if not re.match(r"\.?location ", line)]
    return re.sub(r"  # line \d+| loc=\d+| location=\d+| #\d+", "", "\n".join(kept)) + "\n"


def stage_texts(name: str) -> dict[str, str]:
    kernel, *arguments = CASES[name]
    traced = kernel.trace(*arguments, target="trn2")
    return {stage: without_lines(stage_text(traced, stage)) for stage in STAGES}


@pytest.mark.parametrize("name", CASES)
def test_stages_make_what_is_on_file(name: str, request: pytest.FixtureRequest) -> None:
    texts = stage_texts(name)
    earlier = ""
    pieces = []
    for stage, text in texts.items():
        same = text == earlier
        pieces.append(f"== {stage}\n" + ("(as before)\n" if same else text))
        earlier = text
    written = "\n".join(pieces)
    file = FILES / f"{name}.txt"
    if request.config.getoption("--update"):
        file.write_text(written, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == written


@pytest.mark.parametrize("name", CASES)
def test_later_stages_leave_the_products_of_earlier_ones(name: str) -> None:
    """A product prints the same when all stages behind it have run."""
    from nki.ir.text import print_kernel
    from nki.pipeline import compile_kernel

    kernel, *arguments = CASES[name]
    made: list[tuple[object, str]] = []

    def text(form: object) -> str:
        return print_kernel(form) if isinstance(form, TracedKernel) else str(form)

    traced = kernel.trace(*arguments, target="trn2")
    compile_kernel(traced, lambda _, form: made.append((form, text(form))))
    assert [text(form) for form, _ in made[:-1]] == [before for _, before in made[:-1]]


@pytest.mark.parametrize("name", CASES)
def test_every_wait_has_an_update(name: str) -> None:
    """As many units are produced as consumed, ahead of loops, in each iteration and behind."""
    text = stage_texts(name)["synchronise"]
    for level in _levels(text.splitlines()):
        units: dict[str, int] = {}
        for sign, semaphore, amount in re.findall(r" ([-+])S(\d+)(?:\*(\d+))?", "\n".join(level)):
            change = int(amount or 1)
            units[semaphore] = units.get(semaphore, 0) + (change if sign == "+" else -change)
        assert set(units.values()) <= {0}, level


def _levels(lines: list[str]) -> list[list[str]]:
    """The lines of the body and of each loop, those of loops inside left out."""
    found: list[list[str]] = [[]]
    open_levels: list[tuple[int, int]] = [(-1, 0)]
    names = {engine.name for engine in SEQUENCERS}
    for line in lines:
        indent = len(line) - len(line.lstrip())
        words = line.split()
        marker = words and words[0] == "StorageBegin"
        while not marker and indent <= open_levels[-1][0]:
            open_levels.pop()
        found[open_levels[-1][1]].append(line)
        if words and words[0] in ("for", "while") and words[0] not in names:
            open_levels.append((indent, len(found)))
            found.append([])
    return found
