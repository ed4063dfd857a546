"""Public names, each with a kernel that uses it and what NumPy says of the result.

A case is a function of a dtype that returns (body, inputs, expected): `body` gets the inputs as
tiles in SBUF and returns the tiles to compare. `dtypes` and `targets` are what the documents state;
`test_public_surface_runs` runs all of them. Values are small integers, which every dtype holds, so
that results are exact; rounding is tested by operation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import nki
import nki.collectives as ncc
import nki.language as nl
from isa.dtypes import DTYPES

TARGETS = ("trn1", "trn2", "trn3")
SINCE_TRN2 = ("trn2", "trn3")
TRN3 = ("trn3",)

INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
FLOATS = (
    *("float32", "bfloat16", "float16", "tfloat32"),
    *("float8_e4m3", "float8_e5m2", "float8_e4m3fn"),
)
NUMBERS = (*FLOATS, *INTEGERS)
"""Dtypes of arithmetic operands (SDK nki/api/nki.api.shared.rst, Supported Data Types)."""

PACKED = ("float8_e5m2_x4", "float8_e4m3fn_x4", "float4_e2m1fn_x4")
MOVED = (*NUMBERS, "bool", "float8_e8m0fnu", *PACKED)
"""Dtypes that are copied without a look at the values."""

EVERY = MOVED
"""What is asked of every case: a result, or a refusal."""

Values = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """One way to use the public name `name`."""

    name: str
    build: Callable[[str], tuple[Callable[..., Any], tuple[Values, ...], Any]]
    dtypes: tuple[str, ...]
    targets: tuple[str, ...]
    cores: int
    ranks: int

    def supports(self, dtype: str, target: str) -> bool:
        """Whether the documents promise this name for a dtype on a target."""
        generation = 2 + TARGETS.index(target)
        return dtype in self.dtypes and target in self.targets and generation in generations(dtype)

    def run(self, dtype: str, target: str) -> None:
        """Compare with the reference; raises NeuronError where the call is refused."""
        *_, expected = built = self.build(dtype)
        actual = self.results(built, dtype, target)
        single = not isinstance(expected, tuple)
        pairs = zip((actual,), (expected,)) if single and not self.ranks else zip(actual, expected)
        for got, wanted in pairs:
            self.compare(got, wanted, dtype)

    def results(self, built: Any, dtype: str, target: str) -> Any:
        """What the kernel returns; raises NeuronError where the call is refused."""
        body, inputs, _ = built
        kernel = nki.jit(kernel_of(body, dtype), platform_target=target)
        if self.ranks:
            arguments = [{"inputs": [x[rank] for x in inputs]} for rank in range(self.ranks)]
            return ncc.simulate_ranks(kernel[self.cores], arguments)
        return nki.simulate(kernel[self.cores])(list(inputs))

    def compare(self, got: Any, wanted: Any, dtype: str) -> None:
        """Equal values, shapes included; a function as `wanted` judges by itself."""
        if callable(wanted):
            assert wanted(got), self.name
            return
        wanted = np.asarray(wanted)
        if got.dtype.kind in "iu" and got.dtype.itemsize == 4:
            np.testing.assert_array_equal(got, wanted)  # fp32 would round
            return
        message = f"{self.name} of {dtype}"
        assert got.shape == wanted.shape, message
        if dtype in PACKED and got.dtype == wanted.dtype:
            np.testing.assert_array_equal(got.view("u1"), wanted.view("u1"), message)
        else:
            nearest = wanted.astype(np.float32).astype(got.dtype)  # NumPy's and ml_dtypes' rounding
            np.testing.assert_array_equal(
                got.astype(np.float64), nearest.astype(np.float64), message
            )


CASES: dict[str, Case] = {}


def case(
    module: str,
    dtypes: tuple[str, ...] = NUMBERS,
    targets: tuple[str, ...] = TARGETS,
    cores: int = 1,
    ranks: int = 0,
) -> Callable[[Any], Any]:
    """Registers a function named as the public name that it uses (a trailing `_` is dropped), or
    as `name__operand`, whose dtypes are those of that operand."""

    def note(build: Any) -> Any:
        name = f"{module}.{build.__name__.removesuffix('_')}".replace("__", " ")
        assert name not in CASES, name
        CASES[name] = Case(name, build, dtypes, targets, cores, ranks)
        return build

    return note


def generations(dtype: str) -> tuple[int, ...]:
    """The generations that have a dtype."""
    return DTYPES[dtype].generations


def kernel_of(body: Callable[..., Any], dtype: str) -> Callable[..., Any]:
    """A kernel that loads the inputs, calls the body and stores what it returns."""

    def kernel(inputs: Any) -> Any:
        tiles = []
        for array in inputs:
            tile = nl.load(array)
            if dtype == "tfloat32" and array.dtype == "float32" and array.shape[-1] > 1:
                tile = nl.copy(tile, dtype=nl.tfloat32)
            tiles.append(tile)
        results = body(*tiles)
        single = not isinstance(results, tuple)
        stored = tuple(_stored(result) for result in ((results,) if single else results))
        return stored[0] if single else stored

    return kernel


def _stored(result: Any) -> Any:
    if nl.is_hbm(result.buffer):
        return result
    if result.buffer == nl.psum:
        result = nl.copy(result)
    if result.dtype == "tfloat32":
        result = nl.copy(result, dtype=nl.float32)
    out = nl.ndarray(result.shape, dtype=result.dtype, buffer=nl.shared_hbm)
    nl.store(out, result)
    return out


def numpy_dtype(dtype: str) -> Any:
    """The NumPy dtype of arrays that become tensors of a dtype."""
    name = "float32" if dtype == "tfloat32" else dtype
    return np.dtype(getattr(ml_dtypes, name, name))


def values(
    dtype: str, shape: tuple[int, ...], seed: int = 0, low: int = 0, high: int = 4
) -> Values:
    """Small integers of a dtype: numbers that all of them hold."""
    numbers = np.random.default_rng(seed).integers(low, high, shape)
    if dtype == "float8_e8m0fnu":
        numbers = 2.0**numbers
    if dtype in PACKED:
        import neuron_dtypes

        wide = np.random.default_rng(seed).integers(0, 4, (*shape[:-1], 4 * shape[-1]))
        return neuron_dtypes.static_cast(wide.astype(np.float32), dtype)
    return numbers.astype(numpy_dtype(dtype))


def sbuf(shape: Any, dtype: Any) -> Any:
    """A tile in SBUF."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def psum(shape: Any, dtype: Any = "float32") -> Any:
    """A tile in PSUM."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.psum)
