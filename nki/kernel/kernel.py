"""Kernels: what `nki.jit` returns. `nki.compiled` has what it becomes once compiled."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from isa.errors import NeuronError
from isa.target import Target
from nki import progress, settings
from nki.call_chains import explained
from nki.compiled import CompiledKernel
from nki.completion import Listed
from nki.errors import user_frames
from nki.frameworks.callables import is_method, with_name
from nki.frameworks.compiled_functions import outside_graphs
from nki.ir.builder.edges import Schedule, add_edges, check_edges, schedule_of
from nki.ir.context import CURRENT
from nki.ir.nodes import TracedKernel as TracedKernel
from nki.kernel.compiling import compile_traced, order_traced
from nki.trace.call import bind_arguments

if TYPE_CHECKING:
    from nki.transformations import Transformation


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

        from nki.kernel.simulation import Simulation

        return Simulation(self)(*args, **kwargs)

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
        check_cores(self.cores, device)
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
        check_cores(self.cores, device)
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


def check_cores(cores: int, target: Target) -> None:
    if cores not in target.logical_core_sizes:
        sizes = " or ".join(str(size) for size in target.logical_core_sizes)
        raise NeuronError(
            "generation",
            f"kernel[{cores}] on {target.name}, whose logical cores have {sizes} physical core(s)",
            hint="Launch with kernel(...), or compile for trn2 or trn3.",
        )


def as_kernel(kernel: Any) -> Kernel:
    """The kernel itself, or a plain function wrapped as one.

    Raises what `nki.jit` raises.

    >>> def nothing(a): ...
    >>> kernel = as_kernel(nothing)
    >>> kernel.function is nothing, as_kernel(kernel) is kernel
    (True, True)
    """
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
