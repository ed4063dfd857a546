"""From a kernel function to tile IR: `ParserFrontend().compile(kernel, inputs=...)`.

The interface is the one that nki-library's public harness calls (test/utils/kernel_tracer.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from isa.errors import NeuronError
from nki.errors import user_frames
from nki.ir.nodes import TracedKernel as TracedKernel
from nki.kernel import as_kernel


@dataclass(frozen=True, slots=True)
class Operation:
    """The traced kernel as something that prints itself: tile IR text."""

    kernel: TracedKernel

    def print(
        self,
        file: TextIO | None = None,
        enable_debug_info: bool = False,
        use_local_scope: bool = False,
    ) -> None:
        """Write the tile IR to `file` (stdout). It always has its source lines; the two options of
        the vendor's printer change nothing."""
        from nki.ir.text import print_kernel

        print(print_kernel(self.kernel), file=file)


@dataclass(frozen=True, slots=True)
class Module:
    """What a frontend made."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class FrontendResult:
    """A traced kernel, and the names that its results go by."""

    kernel: TracedKernel
    output_names: tuple[str, ...]

    @property
    def module(self) -> Module:
        return Module(Operation(self.kernel))


class NKIFrontend:
    """Traces kernels.

    >>> import numpy as np, nki.isa as nisa, nki.language as nl
    >>> from nki.compiler.frontend import ParserFrontend
    >>> def copy(a):
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nisa.dma_copy(dst=out, src=a)
    ...     return out
    >>> inputs = {"a": np.ones((2, 3), np.float32)}
    >>> ParserFrontend().compile(copy, inputs=inputs, target="trn2").output_names
    ('out',)
    """

    @user_frames
    def compile(
        self,
        kernel: Any,
        inputs: Mapping[str, Any] | None = None,
        target: str | None = None,
        lnc: int = 1,
        artifacts_dir: Any = None,
        dump_python_ast: bool = False,
        output_names: Sequence[str] | None = None,
    ) -> FrontendResult:
        """Trace `kernel` for `inputs`: arrays, `TensorSpec`s and compile-time values by parameter
        name. With `dump_python_ast` its syntax tree goes to artifacts_dir/NAME.ast.txt.

        Raises the errors of `nki.compile`; value-not-allowed for a wrong number of names.
        """
        launched = as_kernel(kernel)[lnc]
        if dump_python_ast and artifacts_dir is not None:
            _dump_syntax(launched.function, Path(artifacts_dir))
        traced = launched.trace(target=target, **(inputs or {}))
        names = tuple(output_names or (tensor.name for tensor in traced.results))
        if len(names) != len(traced.results):
            raise NeuronError(
                "value-not-allowed",
                what=f"output_names has {len(names)} names, {traced.name} returns "
                f"{len(traced.results)} tensors",
            )
        return FrontendResult(traced, names)


class ParserFrontend(NKIFrontend):
    """The frontend under the name that harnesses of NKI 0.3 construct."""


class TracerFrontend(NKIFrontend):
    """The frontend under the name that harnesses from NKI 0.4 on construct."""


def _dump_syntax(function: Any, folder: Path) -> None:
    import ast
    import inspect
    import textwrap

    folder.mkdir(parents=True, exist_ok=True)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    text = ast.dump(tree, indent=2)
    (folder / f"{function.__name__}.ast.txt").write_text(text + "\n", encoding="utf-8")


__all__ = [
    "FrontendResult",
    "Module",
    "NKIFrontend",
    "Operation",
    "ParserFrontend",
    "TracerFrontend",
]
