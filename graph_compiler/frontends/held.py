"""Graphs in the objects in which jax and torch hand them out, recognised by what they have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graph_compiler.hlo.graph import Module


def _lowered(source: Any) -> Module:
    """`jax.jit(f).lower(...)`, a `jax.stages.Lowered`."""
    from graph_compiler.hlo.proto import from_proto

    return from_proto(source.compiler_ir("hlo").as_serialized_hlo_module_proto())


def _exported(source: Any) -> Module:
    """`jax.export.export(...)(...)`, a `jax.export.Exported`: a portable StableHLO artifact."""
    from graph_compiler.frontends import stablehlo

    return stablehlo.load(source.mlir_module_serialized)


def _program(source: Any) -> Module:
    """`torch.export.export(...)`, a `torch.export.ExportedProgram`: its weights become constants,
    and its parameters are those of the arguments with which it was exported."""
    from graph_compiler.freezing import freeze
    from graph_compiler.frontends import torch

    arguments, keywords = source.example_inputs
    module, weights = torch.trace(source, *arguments, **keywords)
    return freeze(module, weights)


_READERS: dict[str, tuple[str, Callable[[Any], Module]]] = {
    "compiler_ir": ("jax", _lowered),
    "mlir_module_serialized": ("jax export", _exported),
    "example_inputs": ("torch", _program),
}
"""By an attribute that only objects of one class have: what it is called, how it is read."""


def held(source: Any) -> tuple[Module, str] | None:
    """The graph in an object, and what the object is; None of others."""
    for attribute, (form, reader) in _READERS.items():
        if hasattr(source, attribute):
            return reader(source), form
    return None
