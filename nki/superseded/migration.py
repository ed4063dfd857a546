"""Superseded spellings in a source file: where they are, and the file without them.

Names are resolved through the file's imports, so `nl.bool` is found whatever `nki.language` is
called, and a variable that happens to be called `nl` is not. Positions come from the syntax tree;
everything else in the file stays as it is, byte for byte.
"""

from __future__ import annotations

import ast
import io
import tokenize
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from nki.superseded import (
    CALLS,
    ENUMERATIONS,
    MEMORIES,
    MODULES,
    NUMBERS_SINCE,
    SUPERSEDED,
    Superseded,
)
from nki.superseded.porting import is_kernel_api, note_on_name, notes_on_call

_NAMES = {row.old: row for row in SUPERSEDED}
_MODULES = {row.old: row for row in MODULES}
_CALLS = {row.old: row for row in CALLS}
_TYPES = {"nki.dtype": Superseded("nki.dtype", "nki.language.DType", _MODULES["nki.dtype"].since)}
"""Modules that stand for the type of their names in annotations."""
_ORDERS = (
    # the function, a place among its arguments, what stands there, what that is called
    (
        "nki.isa.dma_compute",
        2,
        lambda node: isinstance(node, (ast.List, ast.Tuple)),
        _CALLS["nki.isa.dma_compute(dst, srcs, scales, reduce_op)"],
    ),
    (
        "nki.isa.dma_compute",
        1,
        lambda node: isinstance(node, (ast.List, ast.Tuple)) and len(node.elts) == 1,
        _CALLS["nki.isa.dma_compute(dst, [src])"],
    ),
    (
        "nki.isa.affine_select",
        3,
        lambda node: isinstance(node, ast.Constant),
        _CALLS["nki.isa.affine_select(dst, pattern, offset, ...)"],
    ),
)
_WHILE, _ALLOCATION = "while register:", "nki.isa.register_alloc"
_SINCE = _MODULES["neuronxcc.nki"].since


@dataclass(frozen=True, slots=True)
class SupersededSpelling:
    """One superseded spelling: at `line` and `column` (from 1 and 0) stands `old`; `replacement`
    is what to write there instead, None when it is for the author to do (`note` says how)."""

    line: int
    column: int
    old: str
    new: str
    since: str
    note: str
    replacement: str | None
    start: int
    end: int


def findings(source: str, filename: str = "<source>") -> list[SupersededSpelling]:
    """Every superseded spelling of a source text, in order. Raises SyntaxError.

    >>> text = "import nki.language as nl\\nmask = nl.bool\\n"
    >>> [(f.line, f.old, f.replacement) for f in findings(text)]
    [(2, 'nki.language.bool', 'nl.bool_')]
    """
    tree = ast.parse(source, filename)
    found = sorted(_SpellingFinder(source, tree).run(), key=lambda f: (f.start, -f.end))
    return [f for i, f in enumerate(found) if i == 0 or f.start >= found[i - 1].end]


def migrated(source: str, filename: str = "<source>") -> str:
    """The source text with every spelling replaced that has a replacement.

    >>> print(migrated("from nki.isa.constants import oob_mode"))
    from nki.isa import oob_mode
    """
    result, position = [], 0
    for finding in findings(source, filename):
        if finding.replacement is not None:
            result += [source[position : finding.start], finding.replacement]
            position = finding.end
    return "".join(result) + source[position:]


class _SpellingFinder:
    """Walks one syntax tree. `names` maps a variable to the dotted name that an import bound."""

    def __init__(self, source: str, tree: ast.Module) -> None:
        self.source = source
        self.tree = tree
        lines = io.StringIO(source, newline="").readlines()
        self.offsets = [0]
        for line in lines:
            self.offsets.append(self.offsets[-1] + len(line))
        self.lines = lines
        self.names = dict(_imported(tree))
        self.registers = set(self._registers())
        self.bases = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}

    def run(self) -> Iterator[SupersededSpelling]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                yield from self._import_from(node)
            elif isinstance(node, ast.Import):
                yield from self._import(node)
            elif isinstance(node, ast.Call):
                yield from self._simulation(node)
                yield from self._keywords(node)
                yield from self._order(node)
                yield from self._first_generation_call(node)
            elif isinstance(node, (ast.Attribute, ast.Name)):
                yield from self._name(node)
            elif isinstance(node, ast.While):
                yield from self._while(node)

    # Imports

    def _import_from(self, node: ast.ImportFrom) -> Iterator[SupersededSpelling]:
        module = node.module or ""
        row = _module(module)
        if row is not None:
            start, end = self._word(node, module)
            yield self._finding(row, start, end, _renamed(module, row))
            return
        for alias in node.names:
            dotted = f"{module}.{alias.name}"
            row = _module(dotted) or _NAMES.get(dotted)
            if row is None:
                continue
            start, end = self._span(alias)
            home, _, name = row.new.rpartition(".")
            replacement = None
            if home == module and alias.asname is not None:
                replacement = f"{name} as {alias.asname}"
            yield self._finding(row, start, end, replacement, _BY_IMPORT)

    def _import(self, node: ast.Import) -> Iterator[SupersededSpelling]:
        for alias in node.names:
            row = _module(alias.name)
            if row is None:
                continue
            start, _ = self._span(alias)
            new = _renamed(alias.name, row)
            yield self._finding(row, start, start + len(alias.name), new)

    # Uses

    def _name(self, node: ast.Attribute | ast.Name) -> Iterator[SupersededSpelling]:
        dotted = self._dotted(node)
        if dotted is None:
            return
        start, end = self._span(node)
        row = _NAMES.get(dotted)
        note = note_on_name(dotted)
        if note is not None:
            yield self._by_hand(dotted, note, start, end)
        elif row is not None and isinstance(node, ast.Attribute):
            module = _module(dotted.rpartition(".")[0])
            if module is not None and module.rewrite and self._is_alias(node.value):
                return  # the import changes, and the name stays
            yield self._finding(row, start, end, self._spelled(row.new))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = _MODULES.get(dotted) if id(node) in self.bases else _TYPES.get(dotted)
            if module is not None:
                yield self._finding(module, start, end, self._spelled(module.new))

    def _while(self, node: ast.While) -> Iterator[SupersededSpelling]:
        """`while register:`, of a variable that somewhere in the file is a new register."""
        condition = node.test
        if isinstance(condition, ast.Name) and condition.id in self.registers:
            yield self._finding(_CALLS[_WHILE], *self._span(condition), None)

    def _simulation(self, node: ast.Call) -> Iterator[SupersededSpelling]:
        """`nki.cpu_simulate(kernel)[lnc]` becomes `nki.simulate(kernel[lnc])`."""
        part = node.func
        if not isinstance(part, ast.Subscript) or not isinstance(part.value, ast.Call):
            return
        inner = part.value
        row = _NAMES.get(self._dotted(inner.func) or "")
        if row is None or row.new != "nki.simulate" or len(inner.args) != 1 or inner.keywords:
            return
        function, kernel, lnc = (self._text(n) for n in (inner.func, inner.args[0], part.slice))
        if isinstance(inner.args[0], (ast.Lambda, ast.IfExp, ast.BoolOp, ast.BinOp)):
            kernel = f"({kernel})"
        name = self._spelled(row.new) or function
        start, end = self._span(part)
        yield self._finding(row, start, end, f"{name}({kernel}[{lnc}])")

    def _keywords(self, node: ast.Call) -> Iterator[SupersededSpelling]:
        function = self._dotted(node.func)
        for keyword in node.keywords:
            yield from self._member(function, keyword)
            row = _CALLS.get(f"{function}({keyword.arg}=)")
            if row is None or keyword.arg is None:
                continue
            if not row.keyword:
                yield self._finding(row, *self._with_comma(node, keyword), "")
                continue
            start, _ = self._span(keyword)
            yield self._finding(row, start, start + len(keyword.arg), row.keyword)

    def _order(self, node: ast.Call) -> Iterator[SupersededSpelling]:
        """Arguments in the places that they had in earlier versions."""
        function = self._dotted(node.func)
        for name, place, kinds, row in _ORDERS:
            if function == name and len(node.args) > place and kinds(node.args[place]):
                yield self._finding(row, *self._span(node.func), None)

    def _member(self, function: str | None, keyword: ast.keyword) -> Iterator[SupersededSpelling]:
        """A number where an enumeration of `nki.isa` has a name: `dge_mode=2`; and a text where
        `nki.language` has a memory: `buffer="sbuf"`."""
        value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
        parameter, (module, _, _) = keyword.arg or "", (function or "").rpartition(".")
        new = None
        if module == "nki.isa" and type(value) is int and parameter in ENUMERATIONS:
            import nki.isa

            members = getattr(nki.isa, ENUMERATIONS[parameter])
            name = {member.value: member.name for member in members}.get(value)
            new = name and f"nki.isa.{ENUMERATIONS[parameter]}.{name}"
        elif module == "nki.language" and parameter == "buffer" and value in MEMORIES:
            new = f"nki.language.{value}"
        if new:
            row = Superseded(f"{parameter}={value!r}", new, NUMBERS_SINCE)
            yield self._finding(row, *self._span(keyword.value), self._spelled(new))

    def _with_comma(self, call: ast.Call, keyword: ast.keyword) -> tuple[int, int]:
        """Where an argument of a call stands, with what parts it from the next one, or else from
        the one before."""
        start, end = self._span(keyword)
        given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
        spans = sorted(map(self._span, given))
        place = spans.index((start, end))
        if place + 1 < len(spans):
            return start, spans[place + 1][0]
        return (spans[place - 1][1] if place else start), end

    def _first_generation_call(self, node: ast.Call) -> Iterator[SupersededSpelling]:
        dotted = self._dotted(node.func)
        if dotted is None or not is_kernel_api(dotted):
            return
        keywords = {k.arg: k for k in node.keywords if k.arg is not None}
        values = {name: ast.unparse(k.value) for name, k in keywords.items()}
        for what, note in notes_on_call(dotted, values):
            start, end = self._span(node.func)
            if what:
                start, _ = self._span(keywords[what.removesuffix("=")])
                end = start + len(what)
            yield self._by_hand(f"{dotted}({what})", note, start, end)

    # Names

    def _registers(self) -> Iterator[str]:
        """The variables to which a register is assigned where it is made."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                if self._dotted(node.value.func) == _ALLOCATION:
                    yield from (t.id for t in node.targets if isinstance(t, ast.Name))

    def _is_alias(self, node: ast.expr) -> bool:
        """Whether an expression is one variable that an import statement bound to a module."""
        return isinstance(node, ast.Name) and "." in self.names.get(node.id, "")

    def _dotted(self, node: ast.expr) -> str | None:
        """The dotted name that an expression stands for, through the imports."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.names:
            return None
        return ".".join([self.names[node.id], *reversed(parts)])

    def _spelled(self, dotted: str) -> str | None:
        """A dotted name under the names of this file; None when nothing imports its module."""
        if "." not in dotted:
            return dotted
        found = [
            (len(known), variable + dotted[len(known) :])
            for variable, known in self.names.items()
            if dotted == known or dotted.startswith(known + ".")
        ]
        return max(found)[1] if found else None

    # Places

    def _finding(
        self, row: Superseded, start: int, end: int, replacement: str | None, note: str = ""
    ) -> SupersededSpelling:
        if not row.rewrite:
            replacement = None
        by_hand = row.note or note or f"write {row.new}"
        return SupersededSpelling(
            *self._place(start),
            row.old,
            row.new,
            row.since,
            "" if replacement is not None else by_hand,
            replacement,
            start,
            end,
        )

    def _by_hand(self, old: str, note: str, start: int, end: int) -> SupersededSpelling:
        return SupersededSpelling(*self._place(start), old, "", _SINCE, note, None, start, end)

    def _place(self, start: int) -> tuple[int, int]:
        """Line and column of a character."""
        line = bisect_right(self.offsets, start, hi=len(self.lines))
        return line, start - self.offsets[line - 1]

    def _span(self, node: ast.expr | ast.alias | ast.keyword) -> tuple[int, int]:
        """First and one-after-last character of a node; the tree counts columns in bytes."""
        end_line, end_column = node.end_lineno, node.end_col_offset
        assert end_line is not None and end_column is not None
        return self._offset(node.lineno, node.col_offset), self._offset(end_line, end_column)

    def _offset(self, line: int, column: int) -> int:
        text = self.lines[line - 1].encode("utf-8")[:column].decode("utf-8")
        return self.offsets[line - 1] + len(text)

    def _text(self, node: ast.expr) -> str:
        start, end = self._span(node)
        return self.source[start:end]

    def _word(self, node: ast.ImportFrom, module: str) -> tuple[int, int]:
        """Where the module's name stands in `from module import ...`."""
        start = self._offset(node.lineno, node.col_offset)
        tokens = tokenize.generate_tokens(io.StringIO(self.source[start:]).readline)
        next(tokens)
        first = next(tokens)
        row, column = first.start
        lines = self.source[start:].splitlines(keepends=True)
        begin = start + sum(len(line) for line in lines[: row - 1]) + column
        return begin, begin + len(module)


_BY_IMPORT = "rename the import and its uses together"


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(variable, dotted name) of every import of this project's or the vendor's packages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                if first in ("nki", "neuronxcc"):
                    yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = node.module or ""
            if module.partition(".")[0] in ("nki", "neuronxcc"):
                for alias in node.names:
                    yield alias.asname or alias.name, f"{module}.{alias.name}"


def _module(name: str) -> Superseded | None:
    """The row of a module or of one that it is in."""
    for old, row in _MODULES.items():
        if name == old or name.startswith(old + "."):
            return row
    return None


def _renamed(name: str, row: Superseded) -> str:
    return row.new + name[len(row.old) :]
