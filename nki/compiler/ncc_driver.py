"""From a traced kernel to a container file: `CompiledKernel.from_frontend(result, options)`.

The interface is the one that nki-library's public harness calls (test/utils/kernel_tracer.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nki.compiler.frontend import FrontendResult
from nki.errors import user_frames
from nki.trace.call import TensorSpec


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Where the container goes. `target` and `lnc` are those that the frontend traced for;
    `neuronx_cc_args` are options of the vendor's compiler, which have no meaning here."""

    target: str | None = None
    lnc: int = 1
    output_path: str = "kernel.neff"
    artifacts_dir: str | None = None
    neuronx_cc_args: tuple[str, ...] = ()

    def disable_backend_optimizations(self) -> CompileOptions:
        """The same options: passes change no result, and have no switches."""
        return self


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A container on disk.

    `output_specs` holds (name, `TensorSpec`) for every result, `input_output_aliases` the position
    of the parameter for every result that is one: {result: parameter}.
    """

    neff_path: str
    output_specs: list[tuple[str, TensorSpec]]
    input_output_aliases: dict[int, int]

    @classmethod
    @user_frames
    def from_frontend(cls, result: FrontendResult, options: CompileOptions) -> CompiledKernel:
        """Lower a traced kernel and write its container to `options.output_path`.

        >>> import numpy as np, pathlib, tempfile, nki.isa as nisa, nki.language as nl
        >>> from nki.compiler.frontend import ParserFrontend
        >>> def copy(a):
        ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=a)
        ...     return out
        >>> traced = ParserFrontend().compile(copy, {"a": np.ones((2, 3), np.float32)}, "trn2")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     options = CompileOptions(output_path=str(pathlib.Path(folder, "copy.neff")))
        ...     compiled = CompiledKernel.from_frontend(traced, options)
        ...     pathlib.Path(compiled.neff_path).exists()
        True
        >>> compiled.output_specs
        [('out', TensorSpec(shape=(2, 3), dtype='float32', name='out'))]
        """
        from nki.kernel import compile_traced

        kernel = result.kernel
        compile_traced(kernel).save(options.output_path)
        specs = [
            (name, TensorSpec(tensor.shape, tensor.dtype, name))
            for name, tensor in zip(result.output_names, kernel.results)
        ]
        positions: dict[Any, int] = {t: i for i, t in enumerate(kernel.parameters)}
        aliases = {i: positions[t] for i, t in enumerate(kernel.results) if t in positions}
        return cls(str(options.output_path), specs, aliases)


__all__ = ["CompileOptions", "CompiledKernel"]
