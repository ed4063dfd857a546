"""PyTorch modules in: exported by `torch.export`, mapped to jax by torchax, then as `jax.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from graph_compiler.frontends.extras import require
from isa.errors import NeuronError

if TYPE_CHECKING:
    import numpy as np

    from graph_compiler.hlo.graph import Module


def trace(
    module: Any, *arguments: Any, **keywords: Any
) -> tuple[Module, list[np.ndarray[Any, Any]]]:
    """A PyTorch module, exported for these arguments, as a graph; and its weights.

    `module`: a `torch.nn.Module` or a `torch.export.ExportedProgram`. `arguments`, `keywords`:
    tensors, or pytrees of them; for an exported program the graph has the shapes of these, too.
    Leaves that are no tensors are constants of the graph. Execute it with `(*weights, *inputs)`:
    weights are parameters, buffers and constants, in the order of the exported program's signature;
    inputs are the tensors of `arguments` and `keywords` in torch's order. Both have the names that
    the module gives them. Mutations of buffers are not among the results. NKI kernels that the
    module calls are in `Module.kernels`.
    Errors of torch.export and torchax pass unchanged: they name the module's own line.
    Raises NeuronError `missing-extra` without torch or torchax, `hlo-not-supported` for an
    operator of another library that torchax does not know.
    """
    import numpy as np

    torch = require("torch", "torch", "exporting a PyTorch module")
    torchax = require("torchax.export", "torch", "exporting a PyTorch module")
    jax = require("jax", "torch", "exporting a PyTorch module")
    from graph_compiler.frontends import jax as from_jax

    if isinstance(module, torch.export.ExportedProgram):
        exported = module
        _, declared = exported.example_inputs or ((), {})
        keywords = {**{name: keywords[name] for name in declared if name in keywords}, **keywords}
    else:
        exported = torch.export.export(module, arguments, keywords)
    _register_kernels(exported, torch)
    with _views_that_may_copy(exported, torch):
        weights, function = torchax.exported_program_to_jax(exported)
    leaves = torch.utils._pytree.tree_leaves((arguments, keywords))

    def called(weights: Any, inputs: Sequence[Any]) -> Any:
        tensors = iter(inputs)
        values = [next(tensors) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        return function(weights, values)

    def specification(tensor: Any) -> Any:
        dtype = str(tensor.dtype).removeprefix("torch.")
        return jax.ShapeDtypeStruct(tuple(tensor.shape), np.dtype(jax.numpy.dtype(dtype)))

    inputs = [specification(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]
    graph = from_jax.trace(called, weights, inputs)
    _name_parameters(graph, exported.graph_signature, leaves, torch)
    return graph, [np.asarray(array) for array in weights]


def _name_parameters(graph: Module, signature: Any, leaves: Sequence[Any], torch: Any) -> None:
    """Parameters get the names of the module's weights and arguments, where those are free."""
    weights = (*signature.parameters, *signature.buffers, *signature.lifted_tensor_constants)
    inputs = zip(signature.user_inputs, leaves, strict=True)
    names = (*weights, *(name for name, leaf in inputs if isinstance(leaf, torch.Tensor)))
    taken = {item.name for item in graph.instructions()}
    for parameter, name in zip(graph.parameters, names, strict=True):
        if name not in taken:
            taken.add(name)
            parameter.name = name


@contextmanager
def _views_that_may_copy(exported: Any, torch: Any) -> Iterator[None]:
    """Within, the program reshapes where it views. Decompositions of attention give their results
    in other strides than torch does, and no view of those exists."""
    view, reshape = torch.ops.aten.view.default, torch.ops.aten.reshape.default
    nodes = [node for node in exported.graph.nodes if node.target is view]
    for node in nodes:
        node.target = reshape
    try:
        yield
    finally:
        for node in nodes:
            node.target = view


def _register_kernels(exported: Any, torch: Any) -> None:
    """Tell torchax what the operators of NKI kernels are, which an exported program calls.
    Raises hlo-not-supported for other operators that are not torch's and that torchax does not
    know."""
    from nki.torch_exports import NAMESPACE

    registry = require("torchax.ops.ops_registry", "torch", "exporting a PyTorch module")
    known = registry.all_aten_ops
    for node in exported.graph.nodes:
        operator, library = node.target, getattr(node.target, "namespace", "aten")
        if library in ("aten", "prims") or not isinstance(operator, torch._ops.OpOverload):
            continue
        packet = operator.overloadpacket
        if operator in known or packet in known or _decomposes(operator, torch):
            continue
        if library != NAMESPACE:
            raise _unknown(node)
        kernel = getattr(getattr(torch.ops, NAMESPACE), packet.__name__).nki_kernel
        registry.register_torch_dispatch_op(packet, partial(_called, kernel))


def _decomposes(operator: Any, torch: Any) -> bool:
    """Whether an operator is made of others, which torch.export puts in its place."""
    key = "CompositeImplicitAutograd"
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key))


def _unknown(node: Any) -> NeuronError:
    lines = [line.strip() for line in node.meta.get("stack_trace", "").splitlines()]
    where = [f", called at {line}," for line in lines if line.startswith("File ")]
    return NeuronError(
        "hlo-not-supported",
        f"operator {node.target.name()}{''.join(where[-1:])} has no form in jax.",
        why="An exported program becomes a graph by way of torchax, which knows torch's operators.",
        hint="Write that part with torch's own operators, give the operator a decomposition, or "
        "tell torchax: torchax.ops.ops_registry.register_torch_dispatch_op(operator, function).",
    )


def _called(kernel: Any, arrays: list[Any]) -> list[Any]:
    """The results of a kernel for arrays of jax, as a list."""
    found = kernel(*arrays)
    return list(found) if isinstance(found, (tuple, list)) else [found]
