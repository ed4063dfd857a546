"""Reading pieces of HLO text: names, integers, quoted strings, and stretches between brackets."""

from __future__ import annotations

import re
from collections.abc import Iterator

from isa.errors import NeuronError

MAX_DEPTH = 64
"""Nesting of brackets that HLO text may have."""

_SPACE = re.compile(r"(?:\s+|/\*(?!@).*?\*/|//[^\n]*)+", re.DOTALL)
_IN_LINE = re.compile(r"(?:[^\S\n]+|/\*(?!@).*?\*/)*", re.DOTALL)
_PIECE = re.compile(
    r'[^"{}()\[\],/\n]+|"(?:[^"\\]|\\.)*"|/\*.*?\*/|[{}()\[\],/"\n]',
    re.DOTALL,
)
_NAME = re.compile(r'%?(?:[A-Za-z_][\w.]*(?:-(?!>)[\w.]*)*|"(?:[^"\\]|\\.)*")')
_INTEGER = re.compile(r"-?\d{1,19}\Z")
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|([0-7]{1,3})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


class Scanner:
    """A position in a text. Errors are NeuronError hlo-syntax or hlo-truncated, with the line."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.instruction = ""

    def fail(self, what: str, position: int | None = None, code: str = "hlo-syntax") -> NeuronError:
        """The error at a position: the line's number, and the line."""
        position = self.position if position is None else position
        if position >= len(self.text.rstrip()):
            code = "hlo-truncated"
        number = self.text.count("\n", 0, position) + 1
        start = self.text.rfind("\n", 0, position) + 1
        end = self.text.find("\n", position)
        line = self.text[start : end if end >= 0 else len(self.text)].strip()
        name = f" (instruction {self.instruction!r})" if self.instruction else ""
        return NeuronError(code, f"line {number}{name}: {what}", notes=(line[:200],))

    def skip(self) -> None:
        """Go past white space and comments, but not past the comments that `extra` reads."""
        found = _SPACE.match(self.text, self.position)
        if found:
            self.position = found.end()

    @property
    def at_end(self) -> bool:
        self.skip()
        return self.position >= len(self.text)

    def looking_at(self, token: str) -> bool:
        self.skip()
        return self.text.startswith(token, self.position)

    def accept(self, token: str) -> bool:
        """Go past the token if it is next."""
        if not self.looking_at(token):
            return False
        self.position += len(token)
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.fail(f"{token!r} expected")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Go past what the pattern matches here."""
        self.skip()
        found = pattern.match(self.text, self.position)
        if found:
            self.position = found.end()
        return found

    def name(self) -> str:
        """A name, with or without %."""
        found = self.match(_NAME)
        if found is None:
            raise self.fail("name expected")
        return plain_name(found.group())

    def accept_word(self, word: str) -> bool:
        """Go past the word if it is next and not the start of a longer one."""
        self.skip()
        end = self.position + len(word)
        if not self.text.startswith(word, self.position):
            return False
        if end < len(self.text) and (self.text[end].isalnum() or self.text[end] in "_.-="):
            return False
        self.position = end
        return True

    def extra(self) -> str | None:
        """The contents of the next comment of ours, /*@ ... */, if one is next."""
        if not self.looking_at("/*@"):
            return None
        end = self.text.find("*/", self.position)
        if end < 0:
            raise self.fail("a comment is not closed", len(self.text))
        found = self.text[self.position + 3 : end]
        self.position = end + 2
        return found

    def value(self) -> str:
        """The stretch up to the next comma or line end outside brackets, without comments.

        It may be empty: XLA prints `padding=` for a scalar.
        """
        self.position = _IN_LINE.match(self.text, self.position).end()  # type: ignore[union-attr]
        return "".join(self._pieces(False)).strip()

    def bracketed(self) -> str:
        """The stretch from the bracket here to the one that closes it, without comments."""
        self.skip()
        if self.position >= len(self.text) or self.text[self.position] not in "{([":
            raise self.fail("bracket expected")
        return "".join(self._pieces(True))

    def _pieces(self, closing: bool) -> Iterator[str]:
        depth = 0
        text, position = self.text, self.position
        while position < len(text):
            found = _PIECE.match(text, position)
            if found is None:
                break
            piece = found.group()
            if piece[0] in "{([":
                depth += 1
                if depth > MAX_DEPTH:
                    raise self.fail(f"more than {MAX_DEPTH} brackets", position, "hlo-too-large")
            elif piece[0] in "})]":
                depth -= 1
                if depth < 0:
                    break
            elif piece == '"':
                raise self.fail("a string is not closed", len(text))
            elif depth == 0 and piece in ",\n":
                break
            elif piece.startswith("/*"):
                if depth == 0 and piece.startswith("/*@"):
                    break
                position = found.end()
                continue
            position = found.end()
            yield piece
            if closing and depth == 0:
                break
        self.position = position
        if depth > 0:
            raise self.fail("a bracket is not closed", len(text))


def split(text: str, separator: str = ",") -> list[str]:
    """The parts of a text between the separators outside brackets, stripped; none for no text.

    >>> split("{1,2}, f32[3,4]{1,0} x")
    ['{1,2}', 'f32[3,4]{1,0} x']
    """
    parts: list[str] = []
    current: list[str] = []
    depth = 0
    for found in _PIECE.finditer(text):
        piece = found.group()
        if depth == 0 and piece == separator:
            parts.append("".join(current).strip())
            current = []
            continue
        if piece[0] in "{([":
            depth += 1
        elif piece[0] in "})]":
            depth -= 1
        current.append(piece)
    last = "".join(current).strip()
    if last or parts:
        parts.append(last)
    return parts


def inside(text: str, brackets: str = "{}") -> str:
    """What stands between the outer brackets. Raises ValueError where there are none."""
    text = text.strip()
    if len(text) < 2 or text[0] != brackets[0] or text[-1] != brackets[1]:
        raise ValueError(f"{brackets[0]}...{brackets[1]} expected, found {text[:40]!r}")
    return text[1:-1]


def integer(text: str) -> int:
    """A decimal integer of at most 64 bits. Raises ValueError."""
    text = text.strip()
    if not _INTEGER.match(text):
        raise ValueError(f"integer expected, found {text[:40]!r}")
    value = int(text)
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{text} has more than 64 bits")
    return value


def integers(text: str) -> tuple[int, ...]:
    """`{1,2,3}` as a tuple."""
    return tuple(integer(part) for part in split(inside(text)))


def boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"true or false expected, found {text[:40]!r}")
    return text == "true"


def is_string(text: str) -> bool:
    return len(text) >= 2 and text[0] == '"' and text[-1] == '"'


def string(text: str) -> str:
    """The value of a quoted string whose bytes are UTF-8. Raises ValueError."""
    return string_bytes(text).decode()


def string_bytes(text: str) -> bytes:
    """The bytes of a quoted string. Raises ValueError."""
    if not is_string(text):
        raise ValueError(f"string expected, found {text[:40]!r}")

    def unescape(found: re.Match[str]) -> str:
        hexadecimal, octal, other = found.groups()
        if other is not None:
            return _ESCAPED.get(other, other)
        code = int(hexadecimal, 16) if hexadecimal else int(octal, 8)
        return chr(0xDC00 + (code & 0xFF)) if code & 0x80 else chr(code)

    # Escaped bytes beyond ASCII travel as lone surrogates, which stand for single bytes.
    return _ESCAPE.sub(unescape, text[1:-1]).encode("utf-8", "surrogateescape")


def is_braced(text: str) -> bool:
    """Whether a text is one pair of braces around a balanced stretch on one line."""
    if not (text.startswith("{") and text.endswith("}")) or "/*" in text:
        return False
    depth = 0
    for found in _PIECE.finditer(text):
        piece = found.group()
        depth += (piece[0] in "{([") - (piece[0] in "})]")
        if piece in '"\n' or depth > MAX_DEPTH // 2 or (depth <= 0 and found.end() < len(text)):
            return False
    return depth == 0


_QUOTED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}


def quote(value: str | bytes) -> str:
    """A string in quotes, escaped as C does; what is not printable ASCII in octal."""
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    characters = []
    for byte in data:
        character = chr(byte)
        if character in _QUOTED:
            characters.append(_QUOTED[character])
        elif 32 <= byte < 127:
            characters.append(character)
        else:
            characters.append(f"\\{byte:03o}")
    return '"' + "".join(characters) + '"'


def plain_name(text: str) -> str:
    """A name without % and quotes."""
    text = text.removeprefix("%")
    return string(text) if is_string(text) else text


def shown_name(name: str) -> str:
    """A name as text writes it: bare where it can be."""
    found = _NAME.fullmatch(name)
    return name if found and name[0] not in '%"' else quote(name)
