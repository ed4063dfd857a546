"""Graphs as XLA takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Module


def proto_for_xla(module: Module) -> bytes:
    """The module's proto with every name once, and with the shapes for the host.

    The module itself stays as it is.
    """
    from graph_compiler.hlo.proto import from_proto, to_proto

    copy = from_proto(to_proto(module))
    copy.wrappers = ()
    copy.conventions |= {"host_program_shape"}
    copy.make_names_unique()
    for computation in copy.computations:
        computation.attributes.pop("program_shape", None)
    return to_proto(copy)
