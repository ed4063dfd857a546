"""Suggestions for misspelled keywords of a call."""

from __future__ import annotations

from collections.abc import Collection

from isa.errors.calls import close_to
from nki.superseded.removed import KEYWORDS

_RESULT = ("dst", "out")
_FIRST = ("data", "src", "data1", "x", "stationary")
_SECOND = ("data2", "operand0", "y", "moving")

OTHER_WORDS: dict[str, tuple[str, ...]] = {
    "func": ("op", "op0"),
    "function": ("op", "op0"),
    "fn": ("op", "op0"),
    "act": ("op",),
    "operator": ("op", "op0"),
    "reduce": ("op",),
    "output": _RESULT,
    "result": _RESULT,
    "destination": _RESULT,
    "input": _FIRST,
    "source": _FIRST,
    "tensor": _FIRST,
    "tile": _FIRST,
    "a": _FIRST,
    "lhs": _FIRST,
    "lhsT": ("stationary", "data1"),
    "left": ("data1", "stationary"),
    "weights": ("stationary", "moving"),
    "b": _SECOND,
    "rhs": ("moving", "data2", "operand0"),
    "right": ("data2", "moving"),
    "other": _SECOND,
    "scalar": ("operand0", "scale", "value"),
    "scalar1": ("operand0",),
    "scalar2": ("operand1",),
    "multiplier": ("scale", "operand0"),
    "offset": ("bias", "scalar_offset"),
    "dim": ("axis",),
    "dims": ("axis", "axes"),
    "axes": ("axis",),
    "keepdim": ("keepdims",),
    "type": ("dtype",),
    "memory": ("buffer",),
    "space": ("buffer",),
    "size": ("shape",),
    "device": ("target",),
    "platform": ("target",),
    "arch": ("target",),
}
"""Words of other libraries, and the parameters that they may mean, the likeliest first."""

_CORES = "Cores are chosen at the launch: write kernel[2] for kernel"
_ELSEWHERE = dict.fromkeys(("lnc", "cores", "num_cores", "grid", "num_programs"), _CORES)


def meant_by(keyword: str, known: Collection[str]) -> str:
    """The sentence that says what to write for a keyword, with a space behind it; "" for none.

    >>> meant_by("func", ["dst", "op", "data"])
    'Did you mean op=? '
    >>> meant_by("operand", ["dst", "operand0"])
    'Did you mean operand0=? '
    >>> meant_by("lnc", ["target"])
    'Cores are chosen at the launch: write kernel[2] for kernel. '
    """
    if keyword in KEYWORDS:
        return f"{keyword}= is not part of this API: {KEYWORDS[keyword]}. "
    for word in OTHER_WORDS.get(keyword, ()):
        if word in known:
            return f"Did you mean {word}=? "
    if keyword in _ELSEWHERE:
        return f"{_ELSEWHERE[keyword]}. "
    return close_to(keyword, known)
