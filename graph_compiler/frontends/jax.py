"""jax functions in: traced and lowered by jax, read from the HLO proto that it makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graph_compiler.frontends.extras import require

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Module


def to_proto(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> bytes:
    """A jax function, lowered for these arguments, as a serialized HloModuleProto.

    `arguments`, `keywords`: pytrees of arrays or of `jax.ShapeDtypeStruct`. Their leaves, in
    jax's order, are the parameters of the graph; arguments that the function does not use stay.
    A function that is already `jax.jit`-ed keeps its own options (static and donated arguments).
    Errors of jax pass unchanged: they name the function's own line.
    Raises NeuronError `missing-extra` without jax.
    """
    jax = require("jax", "jax", "lowering a jax function")
    jitted = function if hasattr(function, "lower") else jax.jit(function, keep_unused=True)
    lowered = jitted.lower(*arguments, **keywords)
    return lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()


def trace(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Module:
    """A jax function, lowered for these arguments, as a graph; all as of `to_proto`."""
    from graph_compiler.hlo.proto import from_proto

    return from_proto(to_proto(function, *arguments, **keywords))
