"""Launch symbols: integers that are known when a compiled kernel is launched."""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any

from isa.errors import NeuronError

KEPT = 1 << 16
"""Forms and results that are kept, of each kind."""


class Symbol:
    """A launch symbol: an integer that is known when a compiled kernel is launched.

    Its values are the multiples of `multiple_of` from `minimum` to `maximum` (inclusive; None: no
    upper limit). Equal arguments give the same object. Raises value-not-allowed when no value is
    left.

    >>> Symbol("M", 8192, multiple_of=128).minimum
    128
    """

    __slots__ = (
        "_hash",
        "_sympy",
        "high",
        "key",
        "low",
        "maximum",
        "minimum",
        "multiple_of",
        "name",
    )

    name: str
    maximum: int | None
    minimum: int
    multiple_of: int
    low: int
    high: int | None
    key: tuple[Any, ...]
    _hash: int
    _sympy: Any

    def __new__(
        cls, name: str, maximum: int | None, minimum: int | None = None, multiple_of: int = 1
    ) -> Symbol:
        multiple_of = _integer(name, multiple_of)
        low = multiple_of if minimum is None else _integer(name, minimum)
        return _symbol(name, None if maximum is None else _integer(name, maximum), low, multiple_of)

    @property
    def sympy(self) -> Any:
        """The sympy symbol of the same name: a positive integer."""
        if self._sympy is None:
            import sympy

            self._sympy = sympy.Symbol(self.name, integer=True, positive=True)
        return self._sympy

    def admits(self, value: int) -> bool:
        """Whether a launch may give the symbol this value."""
        return (
            value % self.multiple_of == 0
            and value >= self.minimum
            and (self.maximum is None or value <= self.maximum)
        )

    @property
    def condition(self) -> str:
        """The values it takes, in words."""
        upper = "" if self.maximum is None else f" and at most {self.maximum}"
        multiple = f"a multiple of {self.multiple_of}, " if self.multiple_of > 1 else ""
        return f"{multiple}at least {self.minimum}{upper}"

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Symbol) and self.key == other.key)

    def __reduce__(self) -> tuple[Any, ...]:
        return Symbol, (self.name, self.maximum, self.minimum, self.multiple_of)

    def __repr__(self) -> str:
        return f"Symbol({self.name!r}: {self.condition})"


@lru_cache(maxsize=KEPT)
def _symbol(name: str, maximum: int | None, minimum: int, multiple_of: int) -> Symbol:
    if not (isinstance(name, str) and name.isidentifier()) or name in ("min", "max"):
        raise NeuronError("value-not-allowed", f"{name!r} is not a name for a launch symbol")
    if multiple_of < 1 or minimum < 1:
        raise NeuronError(
            "value-not-allowed",
            f"symbol {name}: multiple_of={multiple_of} and min={minimum} must be positive",
        )
    symbol = object.__new__(Symbol)
    symbol.name = name
    symbol.multiple_of = multiple_of
    symbol.low = -(-minimum // multiple_of)
    symbol.high = None if maximum is None else maximum // multiple_of
    symbol.minimum = symbol.low * multiple_of
    symbol.maximum = None if symbol.high is None else symbol.high * multiple_of
    if symbol.high is not None and symbol.high < symbol.low:
        raise NeuronError(
            "value-not-allowed",
            f"symbol {name} has no value: multiples of {multiple_of} from {minimum} to {maximum}",
        )
    top = -1 if symbol.maximum is None else symbol.maximum
    symbol.key = (0, name, top, symbol.minimum, multiple_of)
    symbol._hash = hash(symbol.key)
    symbol._sympy = None
    return symbol


def _integer(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise NeuronError(
            "value-not-allowed", f"symbol {name}: {value!r} is no integer; sizes are"
        ) from None
