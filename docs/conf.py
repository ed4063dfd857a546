"""How Sphinx builds the site: `python -m sphinx -W docs build/site`."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
TUTORIALS = DOCS / "tutorials"
"""Where the notebooks are copied for the build; version control leaves it out."""

sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT), str(ROOT / "tutorials"), os.environ.get("PYTHONPATH", "")]
)
os.environ.pop("NEURON_PLATFORM_TARGET_OVERRIDE", None)

import nki  # noqa: E402

project = "opennki"
author = "the opennki authors"
release = version = nki.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["conf.py"]

html_theme = "furo"
html_title = "opennki"
html_theme_options = {"light_css_variables": {"code-font-size": "75%"}}
"""Small enough for a report's 100 columns."""

html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
pygments_style = "friendly"
pygments_dark_style = "monokai"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = "cache"
_NEEDED = re.compile(r"^ +raise SystemExit\(.*pip install (\w+)", re.MULTILINE)
nb_execution_excludepatterns = [
    f"tutorials/{path.name}"
    for path in (ROOT / "tutorials").glob("*.py")
    for library in _NEEDED.findall(path.read_text(encoding="utf-8"))
    if importlib.util.find_spec(library) is None
]
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
suppress_warnings = ["mystnb.unknown_mime_type"]

default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def copy_tutorials(app: Sphinx) -> None:
    """Put the notebooks where Sphinx looks for pages, with the files that they import."""
    TUTORIALS.mkdir(exist_ok=True)
    wanted = {path.name: path for path in (ROOT / "tutorials").glob("[0-9][0-9]_*.py")}
    for stray in TUTORIALS.glob("*.py"):
        if stray.name not in wanted:
            stray.unlink()
    for name, path in wanted.items():
        copy = TUTORIALS / name
        if not copy.exists() or copy.read_bytes() != path.read_bytes():
            shutil.copyfile(path, copy)


def list_pages(app: Sphinx, page: str, text: list[str]) -> None:
    """Put what lies below an overview of the reference into the navigation."""
    if page.startswith("reference/") and page.endswith("/index"):
        below = ["*"] if page != "reference/index" else ["*", "*/index"]
        text[0] += "\n".join(["", "```{toctree}", ":hidden:", ":glob:", "", *below, "```", ""])


def mark_plurals(
    app: Sphinx, what: str, name: str, item: object, options: object, lines: list[str]
) -> None:
    """Docstrings say `TensorSpec`s; reStructuredText wants the end of the code marked."""
    lines[:] = [re.sub(r"(`[^`]+`)(?=\w)", r"\1\\ ", line) for line in lines]


def setup(app: Sphinx) -> None:
    app.add_lexer("output", TextLexer)  # what pages print, in the colour of text
    app.connect("builder-inited", copy_tutorials)
    app.connect("source-read", list_pages)
    app.connect("autodoc-process-docstring", mark_plurals)
