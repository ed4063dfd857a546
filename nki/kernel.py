"""Kernels: what `nki.jit` returns. `nki.compiled` has what it becomes once compiled."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from isa.errors import NeuronError
from isa.gc_pause import collection_paused
from isa.target import Target
from nki import progress, settings
from nki.artifacts import keep
from nki.call_chains import explained
from nki.compiled import CompiledKernel, packed, run_settings, update
from nki.completion import Listed
from nki.errors import user_frames
from nki.frameworks.arrays import as_numpy, like
from nki.frameworks.callables import is_method, stops_in_debugger, with_name
from nki.frameworks.compiled_functions import outside_graphs
from nki.ir.builder.edges import Schedule, add_edges, check_edges, schedule_of
from nki.ir.context import CURRENT
from nki.ir.nodes import TracedKernel as TracedKernel
from nki.jax_transforms import called_back, is_traced
from nki.superseded import hint_at_call
from nki.torch_exports import exported_call, is_exported
from nki.trace.call import (
    arrays_in,
    bind_arguments,
    refuse_unknown,
    refuse_without_data,
    sizes_of,
    tensors_in,
)

if TYPE_CHECKING:
    from nki.transformations import Transformation
    from simulator.profile import Profile

Runner = Callable[["Kernel", dict[str, Any]], Any]
"""A way of running a kernel on arguments by parameter name."""

_KEPT_INSTRUCTIONS = 200_000
"""Instructions of all specialisations that a kernel keeps; the last one stays whatever its size."""


class Kernel(Listed):
    """A kernel function: call it with arrays, or with `kernel[cores](...)` on several cores.

    A call outside a kernel compiles for the arguments' shapes and runs the program on the simulator
    (there is no device); inside another kernel it runs inline. Calling again with equal shapes and
    compile-time values does not compile again. Arrays are those of NumPy, torch or jax. Results
    come back in the library of the arguments, as the array, tuple or list that the function
    returns. Inputs that the kernel writes to are updated in place (arrays of jax never change: a
    kernel that writes to one must return it).

    >>> import numpy as np, nki, nki.language as nl, nki.isa as nisa
    >>> @nki.jit
    ... def double(a):
    ...     tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    ...     nisa.dma_copy(dst=tile, src=a)
    ...     nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nisa.dma_copy(dst=out, src=tile)
    ...     return out
    >>> double(np.ones((2, 3), np.float32))
    array([[2., 2., 2.],
           [2., 2., 2.]], dtype=float32)
    """

    _internal = frozenset({"around", "bound", "compiled", "ordered", "traced", "transformed"})

    def __init__(
        self,
        function: Callable[..., Any],
        cores: int = 1,
        target: str | None = None,
        kept: dict[Any, CompiledKernel] | None = None,
        schedule: Schedule = (),
        transformations: tuple[Transformation, ...] = (),
    ) -> None:
        function = with_name(function)
        functools.update_wrapper(self, function)
        self.function = function
        self.cores = cores
        self.target = target
        self.schedule = schedule
        self.transformations = transformations
        self._kept: dict[Any, CompiledKernel] = {} if kept is None else kept

    @user_frames
    def __getitem__(self, cores: int | tuple[int]) -> Kernel:
        """The kernel on `cores` physical cores (LNC) of one logical core: 1 or 2, also as a grid
        of one dimension, (2,)."""
        if isinstance(cores, tuple) and len(cores) == 1:
            (cores,) = cores
        if not isinstance(cores, (int, np.integer)) or cores not in (1, 2):
            raise NeuronError(
                "value-not-allowed",
                f"kernel[{cores!r}]: a logical core has 1 or 2 physical cores",
                hint="Launch with kernel(...) or kernel[2](...), and loop over tiles, heads and "
                "requests in the kernel.",
            )
        return self._launched(cores=int(cores))

    def _launched(self, **options: Any) -> Kernel:
        """The same function with other options; what is compiled is kept for all of them."""
        return Kernel(self.function, kept=self._kept, **self._options() | options)

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _OPTIONS}

    def __reduce__(self) -> Any:
        """Another process finds the kernel by its name, as it finds a function."""
        where = self.function.__module__, self.function.__qualname__
        return _named, (*where, self._options())

    def __get__(self, instance: Any, owner: type | None = None) -> Kernel:
        """In a class a kernel whose first parameter is `self` is a method."""
        if instance is None or not is_method(self.function):
            return self
        return self.around(MethodType(self.function, instance))

    def around(self, function: Callable[..., Any]) -> Kernel:
        """A kernel of another function, launched as this one is."""
        return Kernel(function, kept=self._kept, **self._options())

    def on(self, target: str | None) -> Kernel:
        """The kernel compiled for `target`; itself with None. Raises unknown-target."""
        if not target:
            return self
        return self._launched(target=settings.target(target).name)

    @property
    def func(self) -> Callable[..., Any]:
        """The function that was decorated, by the name under which public harnesses look for it:
        awslabs/nki-autotune rewrites its source, aws-neuron/nkipy reads its signature."""
        return self.function

    @user_frames
    def with_schedule(self, edges: Any) -> Kernel:
        """The kernel with edges between instructions that have names: pairs of the name of an
        instruction and the name or names of those that it comes after, on the device too.

        Source: SDK nki/guides/how-to-scheduling-apis.rst. Raises value-not-allowed.

        >>> import numpy as np, nki, nki.language as nl, nki.isa as nisa
        >>> @nki.jit
        ... def kernel(a):
        ...     tile, other = nl.load(a), nl.load(a)
        ...     nisa.reciprocal(dst=tile, data=tile, name="reciprocal")
        ...     nisa.tensor_scalar(dst=other, data=other, op0=nl.add, operand0=1, name="sum")
        ...     nisa.tensor_tensor(dst=tile, data1=tile, data2=other, op=nl.add)
        ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nl.store(out, tile)
        ...     return out
        >>> print(kernel.with_schedule([("sum", "reciprocal")])(np.array([[1, 2]], np.float32)))
        [[3.  3.5]]
        """
        return self._launched(schedule=self.schedule + schedule_of(edges))

    @user_frames
    def with_transformations(self, *names: str) -> Kernel:
        """The kernel compiled with what other compilers do, such as "reuse-loads:weights=3": a load
        of what a tile holds already is left out. Results are the same, bit for bit. Without, a
        kernel is compiled as it is written. In the reference and eager modes, and inside of another
        kernel, it runs as it is written too.

        Names are `reuse-loads`, `reuse-work`, `hoist`, `read-in-psum`, `squares-on-vector` and
        `balance-copies` (docs/how-to/transformations.md). Raises value-not-allowed.

        >>> import numpy as np, nki, nki.language as nl, nki.isa as nisa
        >>> @nki.jit
        ... def kernel(a):
        ...     total = nl.zeros(a.shape, dtype=nl.float32)
        ...     for _ in range(2):
        ...         nisa.tensor_tensor(dst=total, data1=total, data2=nl.load(a), op=nl.add)
        ...     out = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        ...     nl.store(out, total)
        ...     return out
        >>> print(kernel.with_transformations("reuse-loads:a")(np.array([[1, 2]], np.float32)))
        [[2. 4.]]
        """
        from nki.transformations import transformations

        return self._launched(transformations=self.transformations + transformations(names))

    @user_frames
    @outside_graphs
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if CURRENT.get() is not None:
            return self.function(*args, **kwargs)
        configured = settings.logical_core_size()
        if configured not in (None, self.cores):
            raise NeuronError(
                "core-mismatch",
                f"{self!r} is launched on {self.cores} core(s), and NEURON_LOGICAL_NC_CONFIG is "
                f"{configured}",
                why="The runtime's logical cores have that many physical cores (SDK "
                "nki/api/nki/__init__.py, jit).",
                hint=f"Launch with kernel[{configured}](...), or change the variable.",
            )
        return simulate(self)(*args, **kwargs)

    def __repr__(self) -> str:
        lnc = f"[{self.cores}]" if self.cores != 1 else ""
        return f"<nki kernel {self.__name__}{lnc}>"  # type: ignore[attr-defined]

    def _repr_html_(self) -> str:
        """What notebooks show: the signature, and the shapes that it is compiled for."""
        from nki.displays.notebook import kernel_display

        programs = [compiled.program for compiled in self._kept.values()]
        return kernel_display(self.function, self.target, self.cores, programs)

    @user_frames
    def trace(self, *args: Any, target: str | None = None, **kwargs: Any) -> TracedKernel:
        """The tile IR for arguments that are arrays, `TensorSpec`s, or compile-time values."""
        launched = self.on(target)
        return launched.transformed(launched.bound(args, kwargs, ("target",)))

    def bound(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], options: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """The arguments of a call by parameter name, defaults included; `options` as of
        `bind_arguments`."""
        with explained(self.function):
            return bind_arguments(self.function, args, kwargs, options)

    def traced(self, arguments: dict[str, Any]) -> TracedKernel:
        """The tile IR for these arguments by parameter name, defaults included."""
        from nki.trace.exchanges import in_one_order
        from nki.trace.tracer import trace

        device = settings.target(self.target)
        _check_cores(self.cores, device)
        progress.stage("trace")
        traced = trace(self.function, arguments, device, self.cores)
        add_edges(traced.bodies, self.schedule)
        check_edges(traced.bodies)
        return in_one_order(traced)

    def transformed(self, arguments: dict[str, Any]) -> TracedKernel:
        """The tile IR for these arguments after the transformations that were asked for."""
        traced = self.traced(arguments)
        if not self.transformations:
            return traced
        from nki.transformations import transformed

        return transformed(traced, self.transformations)

    def compiled(self, arguments: dict[str, Any]) -> CompiledKernel:
        """The kernel compiled for these arguments by parameter name, defaults included.

        It is kept: the same content of function and arguments (`nki.fingerprint`) on the same
        target is traced once.
        """
        return self._made(compile_traced, self.transformed, arguments)

    def ordered(self, arguments: dict[str, Any]) -> CompiledKernel:
        """As `compiled`, but no pass touches the kernel: its program runs in the author's order.
        The reference mode calls it."""
        return self._made(order_traced, self.traced, arguments)

    def _made(
        self,
        make: Callable[[TracedKernel], CompiledKernel],
        traced: Callable[[dict[str, Any]], TracedKernel],
        arguments: dict[str, Any],
    ) -> CompiledKernel:
        """What `make` makes of the kernel `traced` for these arguments, or made of it before."""
        from nki.fingerprint import fingerprint

        device = settings.target(self.target)
        _check_cores(self.cores, device)
        content = fingerprint(self.function, arguments)
        if content is None:
            return make(traced(arguments))
        options = settings.checks_wanted(), settings.precise_wanted()
        launch = device.name, self.cores, self.schedule, self.transformations
        key = make, content, launch, options
        found = self._kept.get(key)
        if found is None:
            found = make(traced(arguments))
            self._kept[key] = found
            while len(self._kept) > 1 and sum(map(_size, self._kept.values())) > _KEPT_INSTRUCTIONS:
                del self._kept[next(iter(self._kept))]
        return found


_OPTIONS = ("cores", "target", "schedule", "transformations")
"""What a launch may choose about a kernel, by the names of the constructor."""


def _named(module: str, name: str, options: dict[str, Any]) -> Kernel:
    """The kernel that a module has under a name, launched as it was where it comes from."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    # What stands above `nki.jit`, as `nki.autotune` does, has the kernel.
    kernel = as_kernel(getattr(found, "kernel", found))
    return Kernel(kernel.function, kept=kernel._kept, **options)


def _size(compiled: CompiledKernel) -> int:
    """The instructions of a compiled kernel."""
    cores = compiled.program.cores
    return 1 + sum(len(stream) for core in cores for stream in core.streams.values())


def _check_cores(cores: int, target: Target) -> None:
    if cores not in target.logical_core_sizes:
        sizes = " or ".join(str(size) for size in target.logical_core_sizes)
        raise NeuronError(
            "generation",
            f"kernel[{cores}] on {target.name}, whose logical cores have {sizes} physical core(s)",
            hint="Launch with kernel(...), or compile for trn2 or trn3.",
        )


def as_kernel(kernel: Any) -> Kernel:
    """The kernel itself, or a plain function wrapped as one."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, functools.partial) and isinstance(kernel.func, Kernel):
        inner = functools.partial(kernel.func.function, *kernel.args, **kernel.keywords)
        return kernel.func.around(inner)
    return Kernel(_callable(kernel))


def _callable(function: Any) -> Callable[..., Any]:
    if not callable(function):
        raise NeuronError(
            "value-not-allowed",
            f"{function!r} is no kernel: a function is needed",
            hint="Decorate the function with @nki.jit; options go by keyword, @nki.jit(...).",
        )
    kernel: Callable[..., Any] = function
    return kernel


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


def compile_traced(
    traced: TracedKernel, observe: Callable[[str, Any], None] | None = None
) -> CompiledKernel:
    """Lower traced tile IR and, unless NKI_CHECKS=0, prove that the program has no race.

    `observe(stage, product)` sees what each stage makes (`nki.pipeline.STAGES`)."""
    from nki.pipeline import compile_kernel
    from nki.verification.hbm_capacity import check_hbm

    with collection_paused():
        program = compile_kernel(traced, observe)
        check_hbm(program)
        if settings.checks_wanted():
            progress.stage("proof that nothing races")
            from nki.verification import verify_program

            verify_program(program)
            if observe is not None:
                observe("verify", program)
    keep(program)
    return CompiledKernel(program, container=_container(traced.results), traced=traced)


def order_traced(traced: TracedKernel) -> CompiledKernel:
    """Traced tile IR as it is, ready to run in the author's order."""
    from nki.reference.in_order import in_order
    from nki.verification.hbm_capacity import check_hbm

    ordered = in_order(traced)
    check_hbm(ordered.program)
    if settings.checks_wanted() and len(ordered.program.cores) > 1:
        from nki.verification import verify_program

        verify_program(ordered.program)
    return CompiledKernel(ordered.program, ordered.capacity, _container(traced.results))


def _container(results: Any) -> type | None:
    """What a kernel returns its results in (`nki.ir.builder.results.Results`)."""
    return getattr(results, "container", None)


@user_frames
def simulate(
    kernel: Any,
    *,
    target: str | None = None,
    mode: str | None = None,
    backend: str | None = None,
) -> Simulation:
    """A callable that runs the kernel on this machine, and launches on cores as a kernel does:
    `nki.simulate(kernel)[2](...)` is `nki.simulate(kernel[2])(...)`.

    `mode`: "device" compiles and runs the program, "reference" runs the tile IR, "eager" runs
    every operation as its line of Python executes (for `breakpoint()` and `print`). All three
    give the same bits. Calls with equal arguments run the kernel's Python once, but in eager mode,
    which runs it each time. None takes NKI_MODE, and without it "eager" for a kernel that calls
    `breakpoint()` itself, "device" for others. `backend`: "native" for compiled micro-kernels,
    "numpy" for the NumPy code that they are compared with; None takes NKI_BACKEND, and native
    without it. `target` goes before that of the kernel.

    Source: SDK nki/api/nki/__init__.py (simulate); target, modes and backends are ours.

    Raises unknown-mode, unknown-target.

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def reversed_signs(a):
    ...     tile = nl.load(a)
    ...     nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=-1.0)
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, tile)
    ...     return out
    >>> a = np.array([[1, 2, 3]], np.float32)
    >>> for mode in ("device", "reference", "eager"):
    ...     print(nki.simulate(reversed_signs, mode=mode)(a))
    [[-1. -2. -3.]]
    [[-1. -2. -3.]]
    [[-1. -2. -3.]]
    """
    if mode is not None:
        settings.mode_wanted(mode, mode)
    return Simulation(as_kernel(kernel).on(target), mode, backend)


class Simulation:
    """What `nki.simulate` returns: call it, or launch it on cores with `[lnc]` first."""

    def __init__(self, kernel: Kernel, mode: str | None, backend: str | None) -> None:
        functools.update_wrapper(self, kernel, updated=())
        self.kernel, self.mode, self.backend = kernel, mode, backend

    @user_frames
    def __getitem__(self, cores: int | tuple[int]) -> Simulation:
        return Simulation(self.kernel[cores], self.mode, self.backend)

    @user_frames
    @outside_graphs
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.backend is None:
            return _simulate(self.mode, self.kernel, args, kwargs)
        token = settings.BACKEND.set(self.backend)
        try:
            return _simulate(self.mode, self.kernel, args, kwargs)
        finally:
            settings.BACKEND.reset(token)


def _simulate(
    mode: str | None, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    own = "eager" if stops_in_debugger(kernel.function) else "device"
    chosen = settings.mode_wanted(mode, own)
    if "eager" in (own, chosen):
        progress.close()  # a debugger may need the terminal
    runner = _RUNNERS[chosen]
    arguments = kernel.bound(args, kwargs)
    refuse_without_data(tensors_in(arguments))

    def run(given: dict[str, Any]) -> Any:
        with explained(kernel.function, lambda: kernel.traced(given)):
            return runner(kernel, given)

    if not settings.precise_wanted():
        from nki.trace.in_fp32 import in_fp32

        run = functools.partial(in_fp32, run)
    if is_traced(arguments):
        return called_back(run, kernel, arguments)
    if is_exported(arguments):
        return exported_call(run, kernel, arguments)
    return run(arguments)


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


def _run_device(kernel: Kernel, arguments: dict[str, Any]) -> Any:
    if _has_replica_group(arguments):
        from nki.ranks.world import same_on_all_ranks

        return same_on_all_ranks(simulate(kernel, mode="eager"), arguments)
    with collection_paused():
        return kernel.compiled(arguments)(*arrays_in(arguments))


def _has_replica_group(arguments: dict[str, Any]) -> bool:
    """Whether a kernel is for several ranks, all of which get these arguments."""
    module = sys.modules.get("nki.ranks.group")
    return module is not None and any(
        isinstance(value, module.ReplicaGroup) for value in arguments.values()
    )


def _run_reference(kernel: Kernel, arguments: dict[str, Any]) -> Any:
    with collection_paused():
        return kernel.ordered(arguments)(*arrays_in(arguments))


def _run_eager(kernel: Kernel, arguments: dict[str, Any]) -> Any:
    from nki.eager.eager import run_eager

    target = settings.target(kernel.target)
    _check_cores(kernel.cores, target)
    if kernel.schedule:
        kernel.traced(arguments)  # operations run in their order; edges must be right
    checked, native = settings.checks_wanted(), settings.native_wanted()
    with run_settings():
        outputs, after = run_eager(
            kernel.function, arguments, target, kernel.cores, checked, native
        )
    given = arrays_in(arguments)
    update([as_numpy(array) for array in given], after)
    return like(given, packed(outputs, outputs.container))


_RUNNERS: dict[str, Runner] = {
    "device": _run_device,
    "reference": _run_reference,
    "eager": _run_eager,
}
