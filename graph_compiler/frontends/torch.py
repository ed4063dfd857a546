"""PyTorch modules in: exported by `torch.export`, mapped to jax by torchax, then as `jax.py`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from graph_compiler.frontends.extras import require

if TYPE_CHECKING:
    import numpy as np

    from graph_compiler.hlo.graph import Module


def trace(module: Any, *arguments: Any) -> tuple[Module, list[np.ndarray[Any, Any]]]:
    """A PyTorch module, exported for these arguments, as a graph; and its weights.

    `module`: a `torch.nn.Module` or a `torch.export.ExportedProgram`. `arguments`: tensors (or
    pytrees of them); for an exported program the graph has the shapes of these, too. The graph's
    parameters are the weights (parameters, buffers, constants, in the order of the exported
    program's signature), then the leaves of `arguments`: execute it with
    `(*weights, *inputs)`. Mutations of buffers are not among its results. NKI kernels that the
    module calls are in `Module.kernels`.
    Errors of torch.export and torchax pass unchanged: they name the module's own line.
    Raises NeuronError `missing-extra` without torch or torchax.
    """
    import numpy as np

    torch = require("torch", "torch", "exporting a PyTorch module")
    torchax = require("torchax.export", "torch", "exporting a PyTorch module")
    jax = require("jax", "torch", "exporting a PyTorch module")
    from graph_compiler.frontends import jax as from_jax

    exported = (
        module
        if isinstance(module, torch.export.ExportedProgram)
        else torch.export.export(module, arguments)
    )
    _register_kernels(exported, torch)
    weights, function = torchax.exported_program_to_jax(exported)

    def specification(tensor: Any) -> Any:
        dtype = str(tensor.dtype).removeprefix("torch.")
        return jax.ShapeDtypeStruct(tuple(tensor.shape), np.dtype(jax.numpy.dtype(dtype)))

    inputs = jax.tree.map(specification, arguments)
    graph = from_jax.trace(function, weights, inputs)
    return graph, [np.asarray(array) for array in weights]


def _register_kernels(exported: Any, torch: Any) -> None:
    """Tell torchax what the operators of NKI kernels are, which an exported program calls."""
    from nki.torch_exports import NAMESPACE

    registry = require("torchax.ops.ops_registry", "torch", "exporting a PyTorch module")
    kernels = getattr(torch.ops, NAMESPACE)
    for node in exported.graph.nodes:
        if getattr(node.target, "namespace", "") != NAMESPACE:
            continue
        packet = node.target.overloadpacket
        if packet not in registry.all_aten_ops:
            kernel = getattr(kernels, packet.__name__).nki_kernel
            registry.register_torch_dispatch_op(packet, partial(_called, kernel))


def _called(kernel: Any, arrays: list[Any]) -> list[Any]:
    """The results of a kernel for arrays of jax, as a list."""
    found = kernel(*arrays)
    return list(found) if isinstance(found, (tuple, list)) else [found]
