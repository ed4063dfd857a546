"""HLO text on XLA's own CPU backend, where jaxlib is installed: an independent reference."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest


@cache
def _client() -> Any:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    return jax.devices()[0].client


def run_xla(text: str, *inputs: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Outputs of the entry computation of an HLO module in text form."""
    client = _client()
    import jax
    from jaxlib import _hlo, _jax, xla_client

    module = _hlo.hlo_module_from_text(text)
    computation = _hlo.XlaComputation(module.as_serialized_hlo_module_proto())
    stablehlo = _jax.mlir.xla_computation_to_mlir_module(computation)
    devices = _jax.DeviceList(tuple(client.local_devices()[:1]))
    executable = client.compile_and_load(stablehlo, devices, xla_client.CompileOptions())
    arguments = [jax.device_put(np.asarray(array)) for array in inputs]
    return [np.asarray(result) for result in executable.execute(arguments)]
