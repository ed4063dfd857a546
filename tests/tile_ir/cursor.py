"""A cursor over one line of tile-IR text: tokens, and errors that name line and column."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from isa.errors import NeuronError

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
INTEGER = re.compile(r"-?\d{1,1000}")  # Python converts no more than some thousand digits
NUMBER = re.compile(r"[-+]?(?:inf|nan|\d+\.?\d*(?:[eE][-+]?\d+)?)")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
WORD = re.compile(r"[^\s,:()\[\]]+")
BASE64 = re.compile(r"[A-Za-z0-9+/=]*")
_BLANKS = re.compile(r" *")


class Line:
    """A cursor over one line of text. Tokens may have blanks before them.

    Methods that need something raise NeuronError ir-syntax where it is missing.
    """

    __slots__ = ("indent", "number", "position", "text")

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.text = text
        self.indent = len(text) - len(text.lstrip(" "))
        self.position = self.indent

    def fail(self, expected: str, position: int | None = None) -> NoReturn:
        """Raise ir-syntax at a position (default: here)."""
        column = self.position if position is None else position
        found = self.text[column:].split(" ")[0] or "the end of the line"
        raise NeuronError(
            "ir-syntax",
            f"line {self.number}, column {column + 1}: expected {expected}, found {found}",
            notes=(self.text, " " * column + "^"),
        )

    def skip(self) -> None:
        match = _BLANKS.match(self.text, self.position)
        assert match is not None
        self.position = match.end()

    @property
    def at_end(self) -> bool:
        self.skip()
        return self.position == len(self.text)

    def end(self) -> None:
        if not self.at_end:
            self.fail("the end of the line")

    def take(self, literal: str) -> bool:
        """Consume the literal if it comes next; words only as whole words."""
        self.skip()
        end = self.position + len(literal)
        if not self.text.startswith(literal, self.position):
            return False
        if literal[-1].isalnum() and end < len(self.text) and _is_word(self.text[end]):
            return False
        self.position = end
        return True

    def need(self, literal: str) -> None:
        """Consume the literal."""
        if not self.take(literal):
            self.fail(f"`{literal}`")

    def match(self, pattern: re.Pattern[str], expected: str) -> str:
        """Consume and return what the pattern matches; `expected` says in words what that is."""
        self.skip()
        match = pattern.match(self.text, self.position)
        if match is None:
            self.fail(expected)
        self.position = match.end()
        return match.group()

    def integer(self) -> int:
        return int(self.match(INTEGER, "an integer"))

    def name(self) -> str:
        return self.match(NAME, "a name")

    def string(self) -> str:
        start = self.position
        try:
            return json.loads(self.match(_STRING, "a string in double quotes"))
        except json.JSONDecodeError:
            self.fail("a string in double quotes", start)

    def choice(self, table: Any, what: str) -> Any:
        """The entry of a mapping that the next name selects."""
        self.skip()
        start = self.position
        name = self.name()
        if name not in table:
            self.fail(f"{what} (one of {', '.join(sorted(table))})", start)
        return table[name]

    def until(self, stops: str) -> tuple[str, int]:
        """The text up to one of the stops outside brackets (not consumed), and its column."""
        self.skip()
        start, depth = self.position, 0
        for column in range(start, len(self.text)):
            character = self.text[column]
            if depth == 0 and character in stops:
                self.position = column
                return self.text[start:column].rstrip(), start
            if character in "([":
                depth += 1
            elif character in ")]":
                depth -= 1
                if depth < 0:
                    break
        self.fail(f"one of `{stops}` after this", start)


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
