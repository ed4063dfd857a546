"""How a program is stated: a function that draws sizes, types and arguments, and gives a function
of jax with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
T = TypeVar("T")

FLOATS = (np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16))


class Draw:
    """What a seed decides."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def size(self, low: int, high: int) -> int:
        """An extent, in one of four cases a power of two."""
        if self.chance(0.25):
            powers = [1 << bit for bit in range(12) if low <= 1 << bit <= high]
            if powers:
                return int(self.random.choice(powers))
        return int(self.random.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.random.integers(len(options)))]

    def float_type(self) -> Any:
        return self.pick(FLOATS)

    def normal(self, *shape: int, dtype: Any = np.float32, scale: float = 1.0) -> Array:
        return (self.random.standard_normal(shape) * scale).astype(dtype)

    def uniform(self, *shape: int, dtype: Any = np.float32, low: float = 0.0) -> Array:
        return self.random.uniform(low, 1.0, shape).astype(dtype)

    def whole(self, low: int, high: int, *shape: int, dtype: Any = np.int32) -> Array:
        """Integers from `low`, less than `high`."""
        return np.asarray(self.random.integers(low, high, shape)).astype(dtype)

    def bits(self, *shape: int, dtype: Any = np.int32) -> Array:
        """Integers of all values."""
        limits = np.iinfo(dtype)
        return self.random.integers(limits.min, limits.max, shape, dtype, endpoint=True)

    def distinct(self, *shape: int, dtype: Any = np.float32) -> Array:
        """Numbers of which no two are equal, so that their order is certain."""
        count = int(np.prod(shape))
        return ((self.random.permutation(count) - count // 2) / 8).reshape(shape).astype(dtype)

    def flags(self, *shape: int, share: float = 0.5) -> Array:
        return self.random.random(shape) < share


class Program(NamedTuple):
    """A function of jax with arguments. Its results may be off by `slack` times the bound of their
    types (`run_user_programs.BOUNDS`); it may be refused by the codes `refusals`."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    slack: float = 1.0
    refusals: frozenset[str] = frozenset()


PROGRAMS: dict[str, Callable[[Draw], Program]] = {}
"""By name, in the order of the modules."""


def program(*, slack: float = 1.0, refusals: Sequence[str] = ()) -> Callable[[Any], Any]:
    """Adds what gives (function, arguments) to the programs."""

    def add(build: Callable[[Draw], tuple[Any, Any]]) -> Callable[[Draw], Program]:
        def built(draw: Draw) -> Program:
            function, arguments = build(draw)
            return Program(function, tuple(arguments), slack, frozenset(refusals))

        name = build.__name__
        assert name not in PROGRAMS, name
        PROGRAMS[name] = built
        return built

    return add
