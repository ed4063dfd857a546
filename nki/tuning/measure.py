"""The predicted time of a kernel with one set of arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from isa.errors import NeuronError
from isa.sections import Facts, html, plain_text
from nki.compiled import CompiledKernel, run_settings
from nki.errors import user_frames
from nki.frameworks.arrays import as_numpy
from nki.kernel import Kernel, as_kernel
from nki.trace.call import arrays_in, tensors_in


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one kernel with one set of arguments takes, in ns; `error` says why it could not be
    compiled, and is empty otherwise. `setting` has the arguments that a sweep chose.

    `total_ns` and `overhead_ns` as in `Profile`; `device_ns` is their sum.

    >>> found = Measurement("add", "trn2", {"rows": 128}, total_ns=2500.0, overhead_ns=9400.0)
    >>> found.total_us, found.device_ns
    (2.5, 11900.0)
    """

    kernel: str
    target: str
    setting: dict[str, Any]
    total_ns: float = 0.0
    overhead_ns: float = 0.0
    instructions: int = 0
    flops: float = 0.0
    hbm_bytes: int = 0
    error: str = ""

    @property
    def device_ns(self) -> float:
        """`total_ns` and the fixed cost of a kernel on the device."""
        return self.total_ns + self.overhead_ns

    @property
    def total_us(self) -> float:
        """`total_ns` in microseconds."""
        return self.total_ns / 1e3

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data for JSON."""
        return {**asdict(self), "device_ns": self.device_ns, "is_simulation": True}

    def section(self) -> Facts:
        """What a report shows."""
        return Facts.of(
            "",
            kernel=f"{self.kernel} on {self.target}",
            time=f"{self.total_us:,.2f} us, and about {self.overhead_ns / 1e3:,.1f} us to start "
            "and stop a kernel (predicted)",
            instructions=f"{self.instructions:,}",
            matmul=f"{self.flops / 1e9:,.3f} GFLOP" if self.flops else None,
            HBM=f"{self.hbm_bytes:,} B",
        )

    def text(self) -> str:
        """The facts as plain text."""
        return plain_text([self.section()])

    def _repr_html_(self) -> str:
        return html([self.section()])


@user_frames
def benchmark(kernel: Any, *, target: str | None = None) -> Callable[..., Measurement]:
    """A callable that predicts how long the kernel takes with its arguments, arrays or
    `TensorSpec`s. The kernel runs only where its control flow depends on data.

    Raises missing-argument, unknown-target, and what compiling and running the kernel raise.

    >>> import nki, nki.language as nl, nki.isa as nisa
    >>> @nki.jit
    ... def copy(a):
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nisa.dma_copy(dst=out, src=a)
    ...     return out
    >>> found = nki.benchmark(copy, target="trn2")(nki.TensorSpec((128, 512), nl.float32))
    >>> found.kernel, found.hbm_bytes, 1 < found.total_us < 100
    ('copy', 524288, True)
    """
    launched = as_kernel(kernel).on(target)

    @user_frames
    def measured(*args: Any, **kwargs: Any) -> Measurement:
        return measure(launched, launched.bound(args, kwargs), {})

    return measured


def measure(kernel: Kernel, arguments: dict[str, Any], setting: dict[str, Any]) -> Measurement:
    """Compile and time. Raises what compiling raises."""
    from nki.call_chains import explained

    with explained(kernel.function, lambda: kernel.traced(arguments)):
        compiled = kernel.compiled(arguments)
        timeline = _timeline(compiled, arguments)
    cores = timeline.cores
    return Measurement(
        kernel=compiled.program.name,
        target=timeline.target,
        setting=setting,
        total_ns=timeline.total_ns,
        overhead_ns=timeline.overhead_ns,
        instructions=timeline.instructions,
        flops=sum(core.flops for core in cores),
        hbm_bytes=sum(core.hbm_read_bytes + core.hbm_write_bytes for core in cores),
    )


def _timeline(compiled: CompiledKernel, arguments: dict[str, Any]) -> Any:
    """The timeline of a kernel, by its program alone or, where that does not say what happens, by
    a run on the arrays among its arguments."""
    from simulator.timing import simulate

    program = compiled.bind([tuple(value.shape) for value, _ in tensors_in(arguments)])
    with run_settings():
        try:
            return simulate(program, keep_spans=False)
        except NeuronError as error:
            arrays = arrays_in(arguments)
            if error.code != "missing-argument" or len(arrays) < len(program.parameters):
                raise
        from simulator.parallel_slices import load

        # What the kernel writes to its inputs goes to copies.
        result = load(program).run([as_numpy(array).copy() for array in arrays])
        return simulate(program, result.trace, keep_spans=False)
