"""PyTorch modules in: exported by `torch.export`, mapped to jax by torchax, then as `jax.py`."""

from __future__ import annotations

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
    `(*weights, *inputs)`. Mutations of buffers are not among its results.
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
    weights, function = torchax.exported_program_to_jax(exported)

    def specification(tensor: Any) -> Any:
        dtype = str(tensor.dtype).removeprefix("torch.")
        return jax.ShapeDtypeStruct(tuple(tensor.shape), np.dtype(jax.numpy.dtype(dtype)))

    inputs = jax.tree.map(specification, arguments)
    graph = from_jax.trace(function, weights, inputs)
    return graph, [np.asarray(array) for array in weights]
