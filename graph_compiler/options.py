"""What a graph is compiled with: `GraphOptions`, which the command line `neuronx-cc` fills.

Values and defaults are those of the SDK's command-line reference
(compiler/neuronx-cc/api-reference-guide/index.rst) unless a field says otherwise.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isa.errors import NeuronError
from nki.errors import named_arguments

if TYPE_CHECKING:
    from isa.target import Target

CASTS = ("none", "matmult", "all")
CAST_TYPES = {"bf16": "bf16", "fp16": "f16", "fp8_e4m3": "f8e4m3", "tf32": "tf32"}
"""The primitive type that each --auto-cast-type names."""

DOWNCASTS = frozenset({"dot", "scatter", "all_reduce", "reduce_scatter", "pow"})
"""Operations that may compute integers in a type that does not hold all of them."""

NATIVE_INT64 = ("default", "enabled", "disabled")
MODEL_TYPES = ("generic", "transformer", "unet-inference")
LEVELS = (1, 2, 3)
LOGICAL_CORES = (1, 2)


@dataclass(frozen=True, slots=True)
class GraphOptions:
    """Options of `graph_compiler.compile`.

    `auto_cast`: which fp32 values are demoted to `auto_cast_type`: "none", "matmult" (operands of
    products and convolutions, whose sums stay fp32) or "all". Parameters and results keep types.
    `emulate_fp8_e4m3fn`: f8e4m3fn is computed as bf16 on targets that do not have it; else graphs
    with it are refused there. Results are those of f8e4m3fn, also from 256 on, where the vendor's
    option, which takes the bytes as f8e4m3, gives infinities and NaN.
    `implicit_integer_downcast`: operations that may compute 32- or 64-bit integers in a type that
    does not hold all of them, of `DOWNCASTS`. The command line permits all, a call none. Only
    products need it: other operations on 32-bit integers are exact here.
    `native_int64`: 64-bit integers become 32-bit ones where the graph proves that they fit, in all
    modes; parameters and results keep their types, and what only moves, compares or chooses others
    does so. What computes numbers that may not fit is done in pairs of 32-bit integers if
    "enabled", else refused; graphs that make random bits, whose state has 64 bits, have pairs in
    all modes.
    `saturate_infinity`: infinities that the tensor engine transposes become the largest numbers on
    targets whose engine multiplies them by an identity matrix, which makes other elements NaN.
    `logical_cores`: physical cores that share the graph (`graph_compiler.lower.cores.cores`).
    `documented_limits`: refuse also what the vendor's compiler documents that it does not compile
    and this one does, as the command line does.
    `optimisation`: from 2 on plans are compiled and timed, and the fastest is taken.
    `model_type`: a hint, with the same program today whatever it is.

    Raises NeuronError value-not-allowed for values outside of those documented.

    >>> GraphOptions(auto_cast="matmult").auto_cast_type
    'bf16'
    """

    auto_cast: str = "none"
    auto_cast_type: str = "bf16"
    emulate_fp8_e4m3fn: bool = False
    implicit_integer_downcast: frozenset[str] = frozenset()
    native_int64: str = "default"
    saturate_infinity: bool = False
    logical_cores: int = 1
    documented_limits: bool = False
    model_type: str = "generic"
    optimisation: int = 2

    def __post_init__(self) -> None:
        _one_of("auto_cast", self.auto_cast, CASTS)
        _one_of("auto_cast_type", self.auto_cast_type, CAST_TYPES)
        _one_of("native_int64", self.native_int64, NATIVE_INT64)
        _one_of("logical_cores", self.logical_cores, LOGICAL_CORES)
        _one_of("model_type", self.model_type, MODEL_TYPES)
        _one_of("optimisation", self.optimisation, LEVELS)
        if not isinstance(self.implicit_integer_downcast, (frozenset, set, tuple, list)):
            what = f"implicit_integer_downcast is {self.implicit_integer_downcast!r}; it is a set."
            raise NeuronError("argument-kind", what, hint='Pass frozenset({"dot"}), for example.')
        for name in sorted(self.implicit_integer_downcast):
            _one_of("implicit_integer_downcast", name, sorted(DOWNCASTS))


GraphOptions.__init__ = named_arguments(GraphOptions.__init__)  # type: ignore[method-assign]


def _one_of(name: str, value: Any, allowed: Collection[Any]) -> None:
    if value not in allowed:
        listed = ", ".join(map(str, allowed))
        raise NeuronError("value-not-allowed", f"{name} is {value!r}; it is one of {listed}")


def check_target(options: GraphOptions, target: Target) -> None:
    """Refuse options that a target does not have.

    Raises NeuronError: documented-refusal (NCC_EARG001).
    """
    from graph_compiler.documented import refusal

    if options.logical_cores not in target.logical_core_sizes:
        sizes = " and ".join(map(str, target.logical_core_sizes))
        raise refusal(
            "EARG001",
            f"a logical core of {options.logical_cores} physical ones does not exist on "
            f"{target.name}, which has {sizes}.",
        )


_FIRST_WITH_E4M3FN = 4


def has_e4m3fn(target: Target) -> bool:
    """Whether a target has the type f8e4m3fn (SDK compiler/error-codes/EVRF051.rst)."""
    return target.generation >= _FIRST_WITH_E4M3FN
