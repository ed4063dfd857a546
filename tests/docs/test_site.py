"""The pages under docs/ that people wrote: their code runs, and their links lead somewhere."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.sections import Facts, Table
from nki.advice.fusions import FUSIONS
from nki.pages import pages
from simulator.profile import report, what_if
from simulator.profile.verdict import SHORT_ROWS

DOCS = Path(__file__).resolve().parents[2] / "docs"
GENERATED = set(pages())
WRITTEN = sorted(
    path.relative_to(DOCS).as_posix()
    for path in DOCS.rglob("*.md")
    if path.relative_to(DOCS).as_posix() not in GENERATED
)
CODE = [
    name for name in WRITTEN if re.search(r"^```python$", (DOCS / name).read_text(), re.MULTILINE)
]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", CODE)
def test_the_code_of_a_page_runs(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """From top to bottom, in one namespace, and prints what the page shows as its output. Kernels
    need their source, so blocks are files, which a first line `# name.py` names."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for number, (language, block) in enumerate(CHECKED.findall((DOCS / name).read_text())):
        if language == "output":
            assert missing(block, printed) == ""
            continue
        named = re.match(r"# (\w+\.py)\n", block)
        file = tmp_path / (named[1] if named else f"block{number}.py")
        file.write_text(block)
        exec(compile(block, str(file), "exec"), names)
        printed = capsys.readouterr().out
    assert [str(warning.message) for warning in recwarn] == []


CHECKED = re.compile(r"^```(python|output)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
"""Blocks of a page that run, and those that show what the one before them prints."""


def missing(output: str, printed: str) -> str:
    """The first lines of an output that were not printed in this order; a line `...` stands for any
    lines."""
    for lines in filter(None, re.split(r"^\.\.\.\n", output, flags=re.MULTILINE)):
        _, found, printed = printed.partition(lines)
        if found != lines:
            return lines
    return ""


def test_outputs_are_compared() -> None:
    assert missing("a\n...\nc\n", "a\nb\nc\n") == missing("b\n", "a\nb\n") == ""
    assert missing("a\n...\nc\n", "c\na\n") == "c\n" and missing("b 2\n", "b 1\n") == "b 2\n"


def test_pages_have_code() -> None:
    assert {"start.md", "programming-model.md", "coming-from/triton.md"} <= set(CODE)


@pytest.mark.parametrize("name", WRITTEN)
def test_links_and_pictures_of_a_page_lead_somewhere(name: str) -> None:
    text = (DOCS / name).read_text()
    prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(([^)#:]+)\)", prose) + re.findall(r"^```{image} (\S+)", text, re.M)
    places = [DOCS / name / ".." / target for target in targets]
    assert [place for place in places if not source(place).exists()] == []


def source(place: Path) -> Path:
    """Where the file of a link is before the site is built, which copies the tutorials."""
    whole = place.resolve()
    tutorials = DOCS / "tutorials"
    return DOCS.parent / whole.relative_to(DOCS) if whole.is_relative_to(tutorials) else whole


def test_every_page_is_in_the_navigation() -> None:
    entries: list[str] = []
    for block in blocks((DOCS / "index.md").read_text(), "{toctree}"):
        entries += [line for line in block.splitlines() if line and not line.startswith(":")]
    listed = {f"{entry}.md" for entry in entries}
    top = {name for name in GENERATED if not name.startswith("reference/")}
    assert listed - {"tutorials/*.md"} == {*WRITTEN, *top, "reference/index.md"} - {"index.md"}


def test_the_glossary_explains_every_engine_figure() -> None:
    """A term has each quantity in code font, in some unit."""
    terms = re.findall(r"^([^:\n].*)\n: ", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    units = re.compile(r"_(ns|percent|cycles)$")
    names = [name for name in report.EngineProfile.__dataclass_fields__ if units.search(name)]
    explained = {units.sub("", name) for term in terms for name in re.findall(r"`(\w+)`", term)}
    assert len(names) > 5
    assert {units.sub("", name) for name in names} - explained == set()


def test_the_glossary_explains_every_word_of_a_report() -> None:
    """Names, titles and headings of all parts of a report, of a kernel that has them all."""

    @nki.jit(target="trn2")
    def kernel(a, b):
        total = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
        for start in range(0, 2048, 128):
            here = nl.ds(start, 128)
            nisa.nc_matmul(dst=total, stationary=nl.load(a[here, :]), moving=nl.load(b[here, :]))
        nisa.activation(dst=tile, op=nl.exp, data=total)
        nl.store(out, tile)
        return out

    words: set[str] = set()
    for section in nki.profile(kernel)(*np.zeros((2, 2048, 128), np.float32))[1].sections():
        assert not isinstance(section, str)
        words.add(section.title.partition(" (")[0].partition(", ")[0])
        if isinstance(section, Table):
            words |= {column.removeprefix(">") for column in section.columns}
        elif isinstance(section, Facts) and section.side_by_side == 1:
            words |= {name for name, _ in section.items}
    plain = {"", "%", "% less", "us", "engine", "on", "line", "for", "kernel", "DMA"}
    assert {"where the time goes", "activation tables", "advice", "busy cycles"} <= words
    text = (DOCS / "glossary.md").read_text() + (DOCS / "profiling.md").read_text()
    text = text.replace("\n", " ").lower()
    units = re.compile(r" (%|us|cycles)$|^TensorE ")
    assert {word for word in words - plain if units.sub("", word).lower() not in text} == set()


def test_the_page_of_profiles_explains_every_kind_of_advice() -> None:
    """Kinds are what the code calls bottlenecks."""
    named = {"overloaded engine", "shared port", "ping-pong between engines"}
    sources = [*(DOCS.parent / "nki" / "advice").glob("*.py"), Path(inspect.getfile(what_if))]
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Changed", "Change"):
                named.update(a.value for a in node.args[:1] if isinstance(a, ast.Constant))
    named = named - {"engine"} | {SHORT_ROWS} | {fusion.bottleneck for fusion in FUSIONS}
    page = (DOCS / "profiling.md").read_text(encoding="utf-8")
    table = page[page.index("| advice |") : page.index("The last three have no rewrite")]
    told = {name for row in table.split("\n")[2:-2] for name in row.split("|")[1].split(",")}
    assert len(named) > 15 and named == {name.strip() for name in told}


def test_no_text_of_a_page_is_taken_for_a_tag() -> None:
    """A browser shows nothing of `<op0>` outside of code."""
    found = {}
    for page in DOCS.rglob("*.md"):
        text = re.sub(r"(`{3,}).*?\1", "", page.read_text(), flags=re.DOTALL)
        text = re.sub(r"(`+).*?\1", "", text, flags=re.DOTALL)
        if tags := re.findall(r"<(?!https?:)[A-Za-z][\w-]*[^<>\n]*>", text):
            found[page.name] = tags
    assert found == {}
