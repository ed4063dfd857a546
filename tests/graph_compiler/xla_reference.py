"""HLO text on XLA's own CPU backend, where jaxlib is installed: an independent reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graph_compiler.frontends import xla
from graph_compiler.hlo.proto import from_proto


def run_xla(text: str, *inputs: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Outputs of the entry computation of an HLO module in text form, which XLA itself reads."""
    hlo = pytest.importorskip("jaxlib._hlo", reason="jax is not installed")
    module = hlo.hlo_module_from_text(text)
    return xla.run(from_proto(module.as_serialized_hlo_module_proto()), *inputs)
