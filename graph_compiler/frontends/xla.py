"""XLA's CPU back end as a second opinion: a graph compiled and run by jaxlib, where installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graph_compiler.frontends.extras import require

if TYPE_CHECKING:
    import numpy as np

    from graph_compiler.hlo.graph import Module


def run(module: Module, *inputs: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """The outputs that XLA computes on the host for a graph of one rank.

    `inputs`: arrays for the parameters of the entry computation, none of them tuples. Errors of
    XLA pass unchanged. On some graphs (constants of less than 8 bits) XLA ends the process. Raises
    NeuronError `missing-extra` without jax.
    """
    import numpy as np

    from graph_compiler.frontends.handover import proto_for_xla

    jax = require("jax", "jax", "running a graph with XLA")
    hlo = require("jaxlib._hlo", "jax", "running a graph with XLA")
    extension = require("jaxlib._jax", "jax", "running a graph with XLA")
    xla = require("jaxlib.xla_client", "jax", "running a graph with XLA")
    devices = jax.devices("cpu")[:1]
    program = extension.mlir.xla_computation_to_mlir_module(
        hlo.XlaComputation(proto_for_xla(module))
    )
    compiled = devices[0].client.compile_and_load(
        program, extension.DeviceList(tuple(devices)), xla.CompileOptions()
    )
    with jax.enable_x64(True):
        arguments = [jax.device_put(np.asarray(array), devices[0]) for array in inputs]
        return [np.asarray(output) for output in compiled.execute(arguments)]
