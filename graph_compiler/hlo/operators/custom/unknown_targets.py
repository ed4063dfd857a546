"""Targets of custom calls that have no meaning here: whose they are, and what to do instead.

Names as jax 0.10 lowers its functions for CPU and TPU, and XLA's compilers rename operations.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from isa.errors import NeuronError


@dataclass(frozen=True, slots=True)
class Family:
    """Targets that `pattern` matches from their beginning: `what` they are, and a way out."""

    pattern: str
    what: str
    hint: str


_ALGEBRA = "Of linear algebra, graphs have dot, cholesky, triangular-solve and fft"
_FUNCTION = "pass a function for it: evaluate(..., custom_calls={target: function})"

FAMILIES = (
    Family(
        r"lapack_[sdcz](potrf|trsm|getrf|gtsv)",
        "It is how jax states Cholesky and LU factors and triangular solves for the CPU.",
        "graph_compiler.frontends.jax.trace(f, x) states them as operations of graphs; so does jax "
        "Cholesky and triangular solves for other platforms: "
        "jax.jit(f).trace(x).lower(lowering_platforms=('tpu',)).",
    ),
    Family(
        r"lapack_|cusolver|cublas|hipsolver|magma|"
        r"(Qr|Eigh|LuDecomposition|ProductOfElementaryHouseholderReflectors)$",
        "It is a decomposition of jnp.linalg by a library of linear algebra.",
        f"{_ALGEBRA}. Decompose outside of the graph, or {_FUNCTION}.",
    ),
    Family(
        r"xla_.*callback",
        "It calls Python in the process that traced the graph (jax.debug, jax.pure_callback).",
        f"Trace the function without it, or {_FUNCTION}.",
    ),
    Family(
        r"(Approx|Partial)Reduce|ApproxTopK",
        "It is an approximate search.",
        f"Use jax.lax.top_k, or {_FUNCTION}.",
    ),
    Family(
        r"__|triton|TopK$",
        "It is what XLA's compiler for another device made of operations.",
        "Take the graph before it is compiled: .lower(...), and not .lower(...).compile().",
    ),
)
"""The first that matches counts."""

_OTHERS = Family("", "", f"Leave it out, or {_FUNCTION}.")


def unknown_target(owner: str, target: str, known: list[str]) -> NeuronError:
    """The error for a call of a target without a meaning; `known` have one.

    >>> unknown_target("custom-call `q`", "lapack_sgeqrf_ffi", []).why
    'It is a decomposition of jnp.linalg by a library of linear algebra.'
    """
    found = next((f for f in FAMILIES if re.match(f.pattern, target)), _OTHERS)
    return NeuronError(
        "hlo-not-supported",
        f"{owner}: no meaning is known of the target {target!r}.",
        why=found.what or "A custom call means what its target is registered for.",
        hint=found.hint,
        notes=(f"targets with a meaning: {', '.join(sorted(known))}",),
    )
