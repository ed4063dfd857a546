"""What makes, compiles and profiles kernels: `nki.jit`, `nki.compile`, `nki.profile`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from isa.errors import NeuronError
from isa.gc_pause import collection_paused
from nki import settings
from nki.call_chains import explained
from nki.compiled import CompiledKernel
from nki.errors import user_frames
from nki.kernel.compiling import compile_traced
from nki.kernel.kernel import Kernel, as_kernel
from nki.superseded import hint_at_call
from nki.trace.call import arrays_in, refuse_unknown, sizes_of, tensors_in

if TYPE_CHECKING:
    from simulator.profile import Profile


_VENDOR_OPTIONS = (
    "additional_compile_opt",
    "debug_kernel",
    "enable_out_of_bound_check",
    "experimental_flags",
    "kernel_return",
    "mode",
    "show_compiler_tb",
)
"""Options of `nki.jit` with which public kernels steer the vendor's tools."""


@overload
def jit(fn: Callable[..., Any], **options: Any) -> Kernel: ...


@overload
def jit(fn: None = None, **options: Any) -> Callable[[Callable[..., Any]], Kernel]: ...


@user_frames
def jit(
    fn: Callable[..., Any] | None = None,
    *,
    target: str | None = None,
    platform_target: str | None = None,
    transformations: tuple[str, ...] | list[str] = (),
    **kwargs: Any,
) -> Any:
    """Make a kernel of a function: `@nki.jit`, `nki.jit(fn)`, or `@nki.jit(target=...)`.

    `target` names the target to compile for; `platform_target` is its name in earlier versions.
    `transformations` are those of `with_transformations`.
    Options of the vendor's tools that have no meaning here (`mode`, `debug_kernel`,
    `show_compiler_tb`, ...) are accepted and do nothing.

    Source: SDK nki/api/nki/__init__.py. Raises unknown-argument, unknown-target.

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit(target="trn2")
    ... def scaled(a, factor=2.0):  # tensors, and values known while compiling
    ...     tile = nl.load(a)
    ...     nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, tile)
    ...     return out
    >>> scaled(np.ones((1, 3), np.float32), factor=5.0)
    array([[5., 5., 5.]], dtype=float32)
    """
    own = "target", "platform_target", "transformations"
    refuse_unknown("nki.jit", kwargs, (*own, *_VENDOR_OPTIONS))
    if "mode" in kwargs:
        hint_at_call("nki.jit(mode=)")
    target = _one_target(target, platform_target)
    if fn is None:
        return functools.partial(jit, target=target, transformations=transformations)
    kernel = as_kernel(fn).on(target)
    return kernel.with_transformations(*transformations) if transformations else kernel


def _one_target(target: str | None, platform_target: str | None) -> str | None:
    """The target that both names of the argument give, checked; None without."""
    if target and platform_target and target != platform_target:
        raise NeuronError(
            "value-not-allowed",
            f"target is {target!r}, platform_target is {platform_target!r}",
            why="They are two names of one argument.",
            hint="Give target= alone.",
        )
    return settings.target(target or platform_target).name if target or platform_target else None


@user_frames
def compile(kernel: Any, /, *args: Any, target: str | None = None, **specs: Any) -> CompiledKernel:
    """Compile a kernel for `TensorSpec`s (or arrays), by position or parameter name.

    Shapes may hold launch symbols (`nki.symbol`); the result then runs for every size that its
    guards admit. Other arguments are compile-time values.

    Raises missing-argument, unknown-argument, unknown-target, race, hbm-overflow, and what the
    kernel's operations raise.

    >>> import nki, nki.language as nl, nki.isa as nisa, numpy as np
    >>> @nki.jit
    ... def copy(a):
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nisa.dma_copy(dst=out, src=a)
    ...     return out
    >>> compiled = nki.compile(copy, a=nki.TensorSpec((4, 8), nl.float32), target="trn2")
    >>> compiled.target
    'trn2'
    >>> compiled(np.ones((4, 8), np.float32)).shape
    (4, 8)
    """
    launched = as_kernel(kernel).on(target)
    retrace = functools.partial(launched.trace, *args, **specs)
    with collection_paused(), explained(launched.function, retrace):
        return compile_traced(retrace())


@user_frames
def profile(kernel: Any, *, target: str | None = None) -> Callable[..., tuple[Any, Profile]]:
    """A callable that runs the kernel, compiled for `target`, and returns (outputs, metrics).

    Where an argument is a `TensorSpec`, nothing runs, and outputs are None. The metrics are a
    `simulator.profile.Profile`: `text()` is a report to read, `to_dict()` the same as data.

    Raises missing-argument, unknown-target, and what compiling and running the kernel raise.

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def add(a, b):
    ...     tile = nl.load(a)
    ...     nisa.tensor_tensor(dst=tile, data1=tile, data2=nl.load(b), op=nl.add)
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, tile)
    ...     return out
    >>> a = np.ones((128, 512), np.float32)
    >>> outputs, metrics = nki.profile(add)(a, a)
    >>> outputs[0, 0].item(), metrics.kernel, metrics.dma.hbm_read_bytes == 2 * a.nbytes
    (2.0, 'add', True)
    >>> 1 < metrics.total_us < 100
    True
    """
    return functools.partial(_profile, as_kernel(kernel).on(target))


@user_frames
def _profile(kernel: Kernel, /, *args: Any, **kwargs: Any) -> tuple[Any, Profile]:
    arguments = kernel.bound(args, kwargs)
    tensors = tensors_in(arguments)
    arrays = arrays_in(arguments)
    with explained(kernel.function, lambda: kernel.traced(arguments)):
        outputs: Any = None
        if len(arrays) == len(tensors):
            outputs, metrics = kernel.compiled(arguments).profile(*arrays)
        else:
            sizes = [sizes_of(value, name) for value, name in tensors]
            metrics = kernel.compiled(arguments).profile_of(sizes)
        metrics.launched_with(arguments)
        return outputs, metrics
