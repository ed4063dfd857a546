"""jax functions in: traced and lowered by jax, read from the HLO proto that it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from graph_compiler.frontends import reflectors, rotations
from graph_compiler.frontends.extras import require

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Module


def to_proto(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> bytes:
    """A jax function, lowered for these arguments, as a serialized HloModuleProto.

    `arguments`, `keywords`: pytrees of arrays or of `jax.ShapeDtypeStruct`. Their leaves, in
    jax's order, are the parameters of the graph; arguments that the function does not use stay.
    A function that is already `jax.jit`-ed keeps its own options (static and donated arguments).
    Calls of NKI kernels become custom calls of `graph_compiler.kernels.TARGET`. Cholesky, LU and QR
    factors, triangular and tridiagonal solves and eigenvalues of symmetric matrices become
    operations of graphs, where jax would call LAPACK on a CPU. Errors of jax pass unchanged: they
    name the function's own line. Raises NeuronError `missing-extra` without jax.
    """
    return _lowered(function, arguments, keywords, {})


def trace(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Module:
    """A jax function, lowered for these arguments, as a graph; all as of `to_proto`. The graph has
    the NKI kernels that it calls in `Module.kernels`."""
    from graph_compiler.hlo.proto import from_proto

    kernels: dict[str, Any] = {}
    module = from_proto(_lowered(function, arguments, keywords, kernels))
    module.kernels.update(kernels)
    return module


def _lowered(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    kernels: dict[str, Any],
) -> bytes:
    """The proto of a function; the kernels that it calls are added to `kernels`."""
    jax = require("jax", "jax", "lowering a jax function")
    jitted = function if hasattr(function, "lower") else jax.jit(function, keep_unused=True)
    if hasattr(jitted, "trace"):
        lowered = _by_own_rules(jitted.trace(*arguments, **keywords), kernels)
    else:
        lowered = jitted.lower(*arguments, **keywords)
    proto: bytes = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    return proto


def _by_own_rules(traced: Any, kernels: dict[str, Any]) -> Any:
    """A traced function lowered with rules for what calls kernels back and for linear algebra. jax
    has no public way to choose how an operation is lowered, other than by platform."""
    from jax._src.callback import pure_callback_lowering, pure_callback_p
    from jax._src.interpreters.mlir import LoweringParameters

    def rule(context: Any, *operands: Any, callback: Any, **parameters: Any) -> Any:
        kernel = getattr(callback.callback_func, "nki_kernel", None)
        if kernel is None:
            return pure_callback_lowering(context, *operands, callback=callback, **parameters)
        return _kernel_call(context, operands, kernel, kernels)

    rules = LoweringParameters(
        override_lowering_rules=((pure_callback_p, rule), *_without_library())
    )
    return traced.lower(_private_parameters=rules)


_OF_GRAPHS = (
    *("cholesky_p", "triangular_solve_p", "tridiagonal_solve_p"),
    *("lu_p", "lu_pivots_to_permutation_p", "ormqr_p"),
)
"""Operations of jax.lax.linalg whose rule for any platform makes operations of graphs."""


_BY_FUNCTIONS = {
    "geqrf_p": reflectors.factored,
    "householder_product_p": reflectors.product,
    "eigh_p": rotations.eigenvectors,
}
"""Those of which functions of ours do."""


def _without_library() -> Iterator[tuple[Any, Any]]:
    """These operations and their rules; for CPUs jax has others, which call LAPACK."""
    from jax._src.interpreters import mlir
    from jax._src.lax import linalg

    for name in _OF_GRAPHS:
        primitive = getattr(linalg, name, None)
        if primitive in mlir._lowerings:  # not every version of jax has all of them
            entry = mlir._lowerings[primitive]
            yield primitive, getattr(entry, "rule", entry)
    for name, function in _BY_FUNCTIONS.items():
        primitive = getattr(linalg, name, None)
        if primitive is not None:
            yield primitive, mlir.lower_fun(function, primitive.multiple_results)


def _kernel_call(context: Any, operands: Any, kernel: Any, kernels: dict[str, Any]) -> Any:
    """The custom call of a kernel, under a name that no other one has."""
    import jax

    from graph_compiler.kernels import TARGET, configuration

    name, number = kernel.__name__, 0
    while name in kernels:
        number += 1
        name = f"{kernel.__name__}.{number}"
    kernels[name] = kernel
    inputs = [f"input{place}" for place in range(len(operands))]
    outputs = [f"output{place}" for place in range(len(context.avals_out))]
    written = configuration(name, "", inputs, outputs)
    lower = jax.ffi.ffi_lowering(TARGET, backend_config=written, api_version=_WITH_STATUS)
    return lower(context, *operands)


_WITH_STATUS = 2
"""The version of the custom call's interface whose configuration is a text."""
