"""The SDK's Python binding of the runtime, on the simulator: load a container, run and time it.

Names, signatures and messages are those of the SDK (neuron-runtime/nrtpy/: configuration.rst,
tensor.rst, model.rst, errors.rst). Beyond them: outputs have their dtype, device times are modelled
ones and so the same in every run, and the notes of an `NrtError` say what was wrong.

>>> import numpy as np, nki, nki.isa as nisa, nki.language as nl, pathlib, tempfile
>>> from simulator.runtime import nrtpy
>>> @nki.jit
... def copy(a):
...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
...     nisa.dma_copy(dst=out, src=a)
...     return out
>>> with tempfile.TemporaryDirectory() as folder:
...     path = pathlib.Path(folder, "copy.neff")
...     nki.compile(copy, nki.TensorSpec((2, 3), nl.float32), target="trn2").save(path)
...     model = nrtpy.NrtpyModel.load_from_neff(path)
>>> a = nrtpy.NrtpyTensor.from_numpy(np.ones((2, 3), np.float32), name="a")
>>> {name: tensor.numpy().sum().item() for name, tensor in model(inputs={"a": a}).items()}
{'out': 6.0}
>>> model.benchmark(inputs={"a": a}).std_dev_ms
0.0
>>> nrtpy.reset()
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np

from isa.dtypes import DTYPES
from isa.errors.calls import named_arguments
from simulator.runtime.device import NrtModel, NrtTensor, RuntimeDevice, TensorMetadata, metadata_of
from simulator.runtime.index_ranges import complaints
from simulator.runtime.status import NrtError, NrtpyError, Status
from simulator.runtime.visible_cores import clear_visible_cores, set_visible_cores
from simulator.views import Array

_MODES = ("device", "host")


class _Process:
    """The one device of a process, while there is one."""

    device: RuntimeDevice | None = None


@cache
def _process() -> _Process:
    """The same object in every thread, as a process has one runtime."""
    return _Process()


@named_arguments
def configure(visible_cores: Iterable[int] | None = None) -> None:
    """Say which cores the runtime sees when it starts. Raises TypeError for what is no iterable of
    integers, ValueError for negative ones, NrtpyError once the runtime is active."""
    if _process().device is not None:
        raise NrtpyError(
            "Cannot configure: the runtime is already active. "
            "Call nrtpy.reset() first to close the runtime, then configure()."
        )
    if visible_cores is None:
        return
    if not isinstance(visible_cores, Iterable):
        given = type(visible_cores).__name__
        raise TypeError(f"visible_cores is an iterable of core numbers, not {given}")
    cores: list[Any] = list(visible_cores)
    for core in cores:
        if isinstance(core, bool) or not isinstance(core, (int, np.integer)):
            raise TypeError(f"visible_cores has {core!r}; core numbers are integers")
        if core < 0:
            raise ValueError(f"visible_cores has {core}; core numbers are not negative")
    set_visible_cores(cores)


@named_arguments
def reset() -> None:
    """Close the runtime and forget which cores it sees; tensors and models become invalid."""
    process = _process()
    if process.device is not None:
        process.device.close()
        process.device = None
        clear_visible_cores()


def get_nrtpy_singleton() -> RuntimeDevice:
    """The device of this process, which starts here."""
    process = _process()
    if process.device is None:
        process.device = RuntimeDevice()
    return process.device


class NrtpyTensor:
    """A tensor in the memory of a core, which is free again when nothing refers to the tensor."""

    def __init__(
        self,
        tensor_ref: NrtTensor,
        shape: tuple[int, ...] | int,
        dtype: Any,
        name: str | None = None,
    ) -> None:
        self.tensor_ref = tensor_ref
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = np.dtype(dtype)
        self.name = name or tensor_ref.name

    @classmethod
    def from_numpy(cls, array: Array, name: str | None = None, core_id: int = 0) -> Self:
        """A new tensor with what an array holds. Raises NrtError NRT_INVALID, NRT_RESOURCE."""
        array = np.asarray(array)
        reference = get_nrtpy_singleton().allocate_tensor(array.nbytes, core_id, name)
        tensor = cls(reference, array.shape, array.dtype, name)
        tensor.write_from_numpy(array)
        return tensor

    def write_from_numpy(self, array: Array) -> None:
        """Replace what the tensor holds. Raises ValueError for an array of another size in bytes,
        NrtpyError where the tensor was freed."""
        memory = self.tensor_ref.bytes_for("write to")
        if array.nbytes != self.tensor_ref.size:
            raise ValueError(
                f"an array of {array.nbytes} bytes does not fit the {self.tensor_ref.size} of "
                f"tensor {self.name!r}"
            )
        memory[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def numpy(self) -> Array:
        """A copy of what the tensor holds. Raises NrtpyError where it was freed."""
        memory = self.tensor_ref.bytes_for("read")
        return memory.copy().view(self.dtype).reshape(self.shape)


@dataclass(frozen=True)
class BenchmarkResult:
    """Durations of a benchmark in ms; the deviation is that of the population."""

    mean_ms: float
    min_ms: float
    max_ms: float
    std_dev_ms: float
    iterations: int
    warmup_iterations: int
    durations_ms: list[float]


class NrtpyModel:
    """A compiled program on a core: `load_from_neff` makes one, a call runs it."""

    def __init__(self, model_ref: NrtModel, name: str, path: Path) -> None:
        self.model_ref = model_ref
        self.name = name
        self.neff_path = path
        program = model_ref.program
        inputs = [program.tensors[index] for index in program.parameters]
        outputs = [program.tensors[index] for index in program.results]
        self.input_tensors_info: dict[str, TensorMetadata] = {
            tensor.name: metadata_of(tensor) for tensor in inputs
        }
        self.output_tensors_info: dict[str, TensorMetadata] = {
            tensor.name: metadata_of(tensor) for tensor in outputs
        }

    @classmethod
    def load_from_neff(
        cls,
        neff_path: Path | str,
        name: str | None = None,
        core_id: int = 0,
        cc_enabled: bool = False,
        rank_id: int = 0,
        world_size: int = 1,
    ) -> Self:
        """Load a container onto a core. With `cc_enabled` it is rank `rank_id` of `world_size`, all
        of which are in this process: a call waits where ranks exchange data until the others have
        come, so each rank is called in a thread of its own.

        Raises NrtError: NRT_FAILURE without such a file, NRT_UNSUPPORTED_NEFF_VERSION,
        NRT_LOAD_NOT_ENOUGH_NC for a core that is not visible, NRT_RESOURCE for more than fits into
        HBM, NRT_INVALID for anything else that is wrong with it.
        """
        path = Path(neff_path)
        if (rank_id or world_size != 1) and not cc_enabled:
            note = f"rank {rank_id} of {world_size} without cc_enabled=True"
            raise NrtError(Status.NRT_INVALID, "Failed to load model", note)
        model = get_nrtpy_singleton().load_model(path, core_id, rank_id, world_size)
        return cls(model, name or path.stem, path)

    def __call__(
        self,
        inputs: Mapping[str, NrtpyTensor],
        outputs: Mapping[str, NrtpyTensor] | None = None,
        save_trace: bool = False,
        ntff_name: str | Path | None = None,
    ) -> dict[str, NrtpyTensor] | None:
        """Run. Returns the outputs where none are given. `save_trace` writes when each instruction
        and transfer ran, in the trace-event format that ui.perfetto.dev opens, to `ntff_name` or
        beside the container.

        Raises NrtError: NRT_INVALID for tensors that are missing, not the model's, or of another
        core, dtype or shape; NRT_EXEC_OOB for an index outside of its tensor (a transfer that skips
        such indices goes on); NRT_TIMEOUT; NRT_EXEC_HW_ERR_COLLECTIVES for a rank that does not
        come within NEURON_RT_EXEC_TIMEOUT seconds; NRT_EXEC_COMPLETED_WITH_ERR. Where the index
        outside is an input of a compiled graph, the error comes after the run, and the outputs are
        there. Raises NrtpyError for a tensor that was freed.
        """
        arrays = self._arrays(inputs)
        into = self._outputs(outputs)
        self._store(self._run(arrays, save_trace, ntff_name), inputs, into)
        if outside := complaints(self.model_ref.ranges, arrays):
            raise NrtError(Status.NRT_EXEC_OOB, "Failed to execute model", *outside)
        return into if outputs is None else None

    def benchmark(
        self,
        inputs: Mapping[str, NrtpyTensor],
        outputs: Mapping[str, NrtpyTensor] | None = None,
        warmup_iter: int = 5,
        benchmark_iter: int = 5,
        mode: str = "device",
    ) -> BenchmarkResult:
        """Durations of `benchmark_iter` runs: "device", what the timing model says, or "host", the
        wall clock of this machine. Raises ValueError, and the errors of a call."""
        if mode not in _MODES:
            raise ValueError(f"mode is {mode!r}; it is one of {', '.join(_MODES)}")
        if benchmark_iter < 1:
            raise ValueError(f"benchmark_iter is {benchmark_iter}; it is at least 1")
        for _ in range(warmup_iter):
            self(inputs, self._outputs(outputs))
        measure = self._device_ms if mode == "device" else self._host_ms
        durations = [measure(inputs, self._outputs(outputs)) for _ in range(benchmark_iter)]
        return BenchmarkResult(
            statistics.fmean(durations),
            min(durations),
            max(durations),
            statistics.pstdev(durations),
            benchmark_iter,
            warmup_iter,
            durations,
        )

    def _host_ms(
        self, inputs: Mapping[str, NrtpyTensor], outputs: Mapping[str, NrtpyTensor]
    ) -> float:
        start = time.perf_counter()
        self(inputs, outputs)
        return (time.perf_counter() - start) * 1e3

    def _device_ms(
        self, inputs: Mapping[str, NrtpyTensor], outputs: Mapping[str, NrtpyTensor]
    ) -> float:
        from simulator.timing import simulate

        result = self.model_ref.run(self._arrays(inputs), traced=True)
        self._store(result, inputs, outputs)
        return simulate(self.model_ref.program, result.trace, keep_spans=False).total_ns / 1e6

    def _run(self, arrays: list[Array], save_trace: bool, ntff_name: str | Path | None) -> Any:
        result = self.model_ref.run(arrays, traced=save_trace)
        if save_trace:
            from simulator.profile import write_perfetto
            from simulator.timing import simulate

            program = self.model_ref.program
            path = Path(ntff_name) if ntff_name else self.neff_path.with_suffix(".ntff")
            write_perfetto(path, program, simulate(program, result.trace))
        return result

    def _arrays(self, inputs: Mapping[str, NrtpyTensor]) -> list[Array]:
        """The inputs in parameter order."""
        self._check(inputs, self.input_tensors_info, "input")
        program = self.model_ref.program
        found = []
        for index in program.parameters:
            declaration = program.tensors[index]
            memory = inputs[declaration.name].tensor_ref.bytes_for("read")
            dtype, shape = DTYPES[declaration.dtype].numpy, declaration.shape
            found.append(memory.copy().view(dtype).reshape(shape))
        return found

    def _outputs(self, outputs: Mapping[str, NrtpyTensor] | None) -> dict[str, NrtpyTensor]:
        """The given outputs, checked; new ones where none are given."""
        if outputs is not None:
            self._check(outputs, self.output_tensors_info, "output")
            return dict(outputs)
        device, core = get_nrtpy_singleton(), self.model_ref.core_id
        return {
            name: NrtpyTensor(
                device.allocate_tensor(info.size, core, name),
                tuple(info.shape),
                DTYPES[info.dtype].numpy,
            )
            for name, info in self.output_tensors_info.items()
        }

    def _store(
        self, result: Any, inputs: Mapping[str, NrtpyTensor], outputs: Mapping[str, NrtpyTensor]
    ) -> None:
        """Write what a run made into the tensors, and what it wrote to its inputs into these."""
        for name, after in zip(self.input_tensors_info, result.inputs_after):
            if after is not None:
                inputs[name].write_from_numpy(np.asarray(after))
        for name, array in zip(self.output_tensors_info, result.outputs):
            outputs[name].write_from_numpy(np.asarray(array))

    def _check(
        self,
        given: Mapping[str, NrtpyTensor],
        wanted: Mapping[str, TensorMetadata],
        kind: str,
    ) -> None:
        if given.keys() != wanted.keys():
            names = f"{kind}s are {sorted(given)}; those of {self.name!r} are {sorted(wanted)}"
            raise NrtError(Status.NRT_INVALID, "Failed to execute model", names)
        for name, info in wanted.items():
            tensor, dtype = given[name], DTYPES[info.dtype].numpy
            fits = tensor.shape == tuple(info.shape) and _same_type(tensor.dtype, np.dtype(dtype))
            if not fits:
                note = (
                    f"{kind} {name!r} is {tensor.dtype}{list(tensor.shape)}; "
                    f"the model's is {info.dtype}{info.shape}"
                )
                raise NrtError(Status.NRT_INVALID, "Failed to execute model", note)
            if tensor.tensor_ref.core_id != self.model_ref.core_id:
                note = (
                    f"{kind} {name!r} is on core {tensor.tensor_ref.core_id}, "
                    f"the model on core {self.model_ref.core_id}"
                )
                raise NrtError(Status.NRT_INVALID, "Failed to execute model", note)


def _same_type(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether a tensor's type is that of the model; 8-bit floats come as int8 too."""
    return given == wanted or given.itemsize == wanted.itemsize == 1


__all__ = [
    "BenchmarkResult",
    "NrtError",
    "NrtTensor",
    "NrtpyError",
    "NrtpyModel",
    "NrtpyTensor",
    "TensorMetadata",
    "configure",
    "get_nrtpy_singleton",
    "reset",
]
