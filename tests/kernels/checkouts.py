"""Checkouts of public repositories, and the kernels in their files and pages.

A kernel is a function under a decorator whose name ends in `jit`, in a Python file that imports
`nki` or in a code block of a page or docstring; not one of the first generation (`nki_legacy`).
Its name is `function`, or `function#2` for the second of that name in one file.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Repository:
    """A public repository: the option that tells where its checkout is, and where kernels are."""

    option: str
    name: str
    folders: tuple[str, ...] = ()
    packages: str = ""
    """The folder of the packages that kernels of other repositories import."""


REPOSITORIES = (
    Repository("--nki-samples", "aws-neuron/nki-samples", ("src", "contributed")),
    Repository(
        "--neuron-sdk", "aws-neuron/aws-neuron-sdk", ("nki", "release-notes", "neuron-runtime")
    ),
    Repository(
        "--neuronx-distributed-inference",
        "aws-neuron/neuronx-distributed-inference",
        ("src", "contrib"),
    ),
    Repository("--nkipy", "aws-neuron/nkipy", ("examples", "nkipy", "nkigen", "tests")),
    Repository("--nki-library", "aws-neuron/nki-library", packages="src/nkilib_src"),
)

_IMPORTS_NKI = re.compile(r"^\s*(import nki\b|from nki\b|from torch_neuronx import nki)", re.M)
_PAGE_BLOCK = re.compile(r"^(\s*)\.\. code(-block)?:: *python")


@dataclass(frozen=True)
class Source:
    """A Python file with the code blocks of its docstrings, or the code blocks of a page."""

    path: str
    text: str

    @cached_property
    def kernels(self) -> dict[str, tuple[str, int]]:
        """Kernels by name, each with the code that defines it and the lines above that code."""
        found: dict[str, tuple[str, int]] = {}
        for code, above in self._pieces():
            try:
                tree = ast.parse(code)
            except SyntaxError:
                for name in re.findall(r"^@.*jit.*\n+def (\w+)", code, re.M):
                    _add(found, name, (code, above))
                continue
            for node in ast.walk(tree):
                if _is_kernel(node):
                    _add(found, node.name, (code, above))
        return found

    def _pieces(self) -> Iterator[tuple[str, int]]:
        if not self.path.endswith(".py"):
            yield from _blocks(self.text)
            return
        yield self.text, 0
        for node in _strings(self.text):
            for code, above in _blocks(node.value):
                yield code, node.lineno - 1 + above


def _strings(source: str) -> Iterator[ast.Constant]:
    """The texts in a file that may hold code blocks, as docstrings do."""
    if ".. code" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and ".. code" in str(node.value):
            yield node


def _add(found: dict[str, tuple[str, int]], name: str, value: tuple[str, int]) -> None:
    count = sum(known.partition("#")[0] == name for known in found) + 1
    found[name if count == 1 else f"{name}#{count}"] = value


def _is_kernel(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any(map(_is_jit, node.decorator_list))


def _is_jit(decorator: ast.expr) -> bool:
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    return ast.unparse(decorator).endswith("jit") and "legacy" not in ast.unparse(decorator)


def _blocks(page: str) -> Iterator[tuple[str, int]]:
    """The Python blocks of a page, each with the number of lines above it."""
    lines = page.splitlines()
    i = 0
    while i < len(lines):
        match = _PAGE_BLOCK.match(lines[i])
        i += 1
        if match is None:
            continue
        start, inner = i, len(match.group(1)) + 1
        while i < len(lines) and (not lines[i].strip() or lines[i].startswith(" " * inner)):
            i += 1
        yield textwrap.dedent("\n".join(lines[start:i])), start


@dataclass(frozen=True)
class Checkout:
    """One checkout: finds the sources with kernels, and loads a kernel."""

    repository: Repository
    root: Path

    @property
    def packages(self) -> str:
        return str(self.root / self.repository.packages)

    @cached_property
    def sources(self) -> dict[str, Source]:
        found = {}
        for folder in self.repository.folders:
            for path in sorted((self.root / folder).rglob("*")):
                if path.suffix not in (".py", ".rst", ".md") or not path.is_file():
                    continue
                text = path.read_text(errors="replace")
                if path.suffix == ".py" and not _IMPORTS_NKI.search(text):
                    continue
                source = Source(path.relative_to(self.root).as_posix(), text)
                if source.kernels:
                    found[source.path] = source
        return found

    def kernel(self, path: str, name: str, folder: Path) -> Any:
        """The kernel, with the other names of its file as its globals.

        The code runs statement by statement under its own line numbers, from a copy in `folder`
        (pages are not Python files). What needs a module that is not installed is left out: a
        kernel that needs it fails with a NameError when it is traced.
        """
        found = self.sources[path].kernels
        code, above = found[name]
        local = folder / (re.sub(r"\W+", "_", f"{path}_{name}") + ".py")
        local.write_text("\n" * above + code)
        function = name.partition("#")[0]
        same = [known for known in found if found[known] == (code, above)]
        index = [known for known in same if known.partition("#")[0] == function].index(name)
        with _imports_from((self.root / path).parent):
            return _run(local, function, index)


@contextmanager
def _imports_from(directory: Path) -> Iterator[None]:
    """Imports find the neighbours of a file, which are forgotten afterwards."""
    sys.path.insert(0, str(directory))
    try:
        yield
    finally:
        sys.path.remove(str(directory))
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(f"{directory}/"):
                del sys.modules[name]


def _run(path: Path, name: str, index: int) -> Any:
    """What the file binds to a name, by the kernel of this index among those of the name."""
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules[path.stem] = module
    exec(_TAKEN_AS_SAID, module.__dict__)
    statements = ast.parse(path.read_text()).body
    chosen = [node for node in statements if _is_kernel(node) and node.name == name][index]
    for statement in statements:
        code = compile(ast.Module([statement], type_ignores=[]), str(path), "exec")
        try:
            exec(code, module.__dict__)
        except (ImportError, NameError):
            if statement is chosen:
                raise
        if statement is chosen:
            kernel = module.__dict__[name]
    return kernel


_TAKEN_AS_SAID = "import nki, numpy as np\nimport nki.isa as nisa\nimport nki.language as nl\n"
"""What blocks of pages take as said."""
