"""Makes kernels opaque to torch.compile: TorchDynamo breaks the graph at a kernel and calls it.

A kernel's Python runs when it is called; it is no graph of PyTorch's operators. The graph breaks as
at a function that `torch.compiler.disable` marks, and results are those of the uncompiled function.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def _splits(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Mark a function as torch.compiler.disable does, for which torch would have to be imported.
    TorchDynamo then splits the graph at calls of it."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = "an NKI kernel is called"  # type: ignore[attr-defined]
    return function


def outside_graphs(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Decorates a public entry point: TorchDynamo traces neither a call of it nor what it calls.

    >>> outside_graphs(max)(1, 2)
    2
    """

    @_splits
    @functools.wraps(function)
    def entry(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        return _untraced(function)(*args, **kwargs)

    return entry


@_splits
def _untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, as TorchDynamo leaves it alone if it is there."""
    if "torch._dynamo" not in sys.modules:
        return function
    return _disabled(function)


@functools.cache
def _disabled(function: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    untraced: Callable[..., Any] = torch.compiler.disable(function)
    return untraced
