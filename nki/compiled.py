"""Compiled kernels: a program with the calling convention of its kernel."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from isa.errors import NeuronError
from isa.program import Program
from nki import progress, settings
from nki.completion import Listed
from nki.errors import user_frames
from nki.frameworks.arrays import as_numpy, like, refuse_read_only
from nki.frameworks.compiled_functions import outside_graphs
from nki.ir.nodes import TracedKernel
from nki.trace.call import refuse_without_data

if TYPE_CHECKING:
    from simulator.device_state import Capacity
    from simulator.execute import ProgramExecutor, RunResult
    from simulator.profile import Profile
    from simulator.profile.critical_lines import Advisor
    from simulator.timing import Timeline

_LOADED_KEPT = 4
"""Programs that stay loaded, each with all memories of its device, ready to run again."""

_LOADED_BYTES = 1 << 28
"""HBM of those that stay loaded beside the one that ran last."""


@dataclass(eq=False, slots=True, weakref_slot=True)
class _Loaded:
    """A bound program and the device that it is loaded on."""

    program: Program
    loaded: ProgramExecutor
    hbm: int  # bytes of its tensors


class _Recent:
    """Holds the programs that ran last, of all kernels that still exist."""

    def __init__(self) -> None:
        self._entries: list[tuple[_Loaded, weakref.ref[CompiledKernel]]] = []

    def ran(self, kernel: CompiledKernel, latest: _Loaded) -> None:
        """A program of a kernel ran. Those that ran long ago are let go of."""
        kept, room = [(latest, weakref.ref(kernel, self._forget))], _LOADED_BYTES
        for loaded, owner in self._entries:
            if loaded is latest:
                continue
            room -= loaded.hbm
            if room >= 0 and len(kept) < _LOADED_KEPT:
                kept.append((loaded, owner))
        self._entries = kept

    def _forget(self, kernel: weakref.ref[CompiledKernel]) -> None:
        self._entries = [entry for entry in self._entries if entry[1] is not kernel]


_RECENT: ContextVar[_Recent | None] = ContextVar("recently_run", default=None)


class CompiledKernel(Listed):
    """A program with the calling convention of its kernel's tensor parameters.

    Call it with arrays in parameter order, or by parameter name. `program` is the
    `isa.program.Program`; `save(path)` writes a container that `nki run` and `load` take. Results
    come as the kernel returns them; those of a program from a file as one array, or as a tuple.

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def copy(a):
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nisa.dma_copy(dst=out, src=a)
    ...     return out
    >>> compiled = nki.compile(copy, nki.TensorSpec((2, 3), nl.float32), target="trn2")
    >>> compiled.program.name, compiled.program.parameter_names
    ('copy', ['a'])
    >>> compiled(a=np.ones((2, 3), np.float32)).sum().item()
    6.0
    """

    _internal = frozenset({"advisor", "packed", "profile_of", "refuse_lost_writes"})

    def __init__(
        self,
        program: Program,
        capacity: Capacity | None = None,
        container: type | None = None,
        traced: TracedKernel | None = None,
    ) -> None:
        self.program = program
        self._traced = traced
        self._capacity = capacity
        self._container = container
        self._loaded: dict[Any, weakref.ref[_Loaded]] = {}

    @property
    def target(self) -> str:
        """The name of the target that the program is for."""
        return self.program.target

    def __repr__(self) -> str:
        names = ", ".join(self.program.parameter_names)
        return f"<compiled kernel {self.program.name}({names}) for {self.target}>"

    def _repr_html_(self) -> str:
        """What notebooks show: tensors, instructions by engine, maps of SBUF and PSUM."""
        from nki.displays.notebook import program_display

        return program_display(self.program)

    @user_frames
    @outside_graphs
    def __call__(self, *arrays: Any, **named: Any) -> Any:
        inputs = self._inputs(arrays, named)
        result = self._run(inputs)[1]
        update(inputs, result.inputs_after)
        return like((*arrays, *named.values()), self.packed(result.outputs))

    @user_frames
    def profile(self, *arrays: Any, **named: Any) -> tuple[Any, Profile]:
        """Run and time: (outputs as a call returns them, the profile)."""
        inputs = self._inputs(arrays, named)
        program, result = self._run(inputs, traced=True)
        update(inputs, result.inputs_after)
        outputs = like((*arrays, *named.values()), self.packed(result.outputs))
        return outputs, self._profiled(program, result.trace)

    @user_frames
    def profile_of(self, shapes: list[tuple[int, ...]]) -> Profile:
        """The profile of one launch with inputs of these shapes, in parameter order. Nothing runs;
        raises missing-argument where data decide what a run executes."""
        try:
            return self._profiled(self.bind(shapes), None)
        except NeuronError as error:
            if error.code != "missing-argument":
                raise
            raise NeuronError(
                error.code,
                f"the data of {self.program.name}'s inputs decide how long it takes",
                why=error.why,
                hint="Pass arrays instead of specifications: the kernel is then run.",
            ) from None

    def _profiled(self, program: Program, trace: Any) -> Profile:
        """The profile of a bound program, by the control trace of its run where there is one."""
        from simulator.profile import profile
        from simulator.timing import simulate as time

        with run_settings():
            timeline = time(program, trace, keep_spans=False, keep_path=True)
        found = profile(program, timeline, self.advisor(program, trace, timeline))
        add_pictures(found, program, trace)
        return found

    def advisor(self, program: Program, trace: Any, timeline: Timeline) -> Advisor:
        """What times changes of a bound program that ran with a control `trace`; those that need
        the compiler only where this kernel is not from a file."""
        from simulator.profile.what_if import what_ifs

        traced = self._traced
        if traced is None:
            return lambda: what_ifs(program, trace, timeline)
        from isa.affine import solve_shape
        from nki.advice import what_ifs as advised

        declared = [self.program.tensors[index].shape for index in self.program.parameters]
        values = solve_shape(declared, [program.tensors[i].shape for i in program.parameters])
        return lambda: advised(traced, values, program, trace, timeline)

    def packed(self, outputs: list[Any]) -> Any:
        """Results in what the kernel returns them in."""
        return packed(outputs, self._container)

    @user_frames
    def save(self, path: Any) -> None:
        """Write the program as a container; replaces the file as a whole or not at all."""
        from isa.files.container import save

        save(self.program, path)

    @user_frames
    def program_for(self, arrays: list[np.ndarray]) -> Program:
        """The program bound to the sizes of `arrays`, which come in parameter order.

        Raises input-mismatch for a dtype or shape that does not fit, or guard-refused.
        """
        self._check(arrays)
        return self.bind([array.shape for array in arrays])

    @user_frames
    def bind(self, shapes: list[tuple[int, ...]]) -> Program:
        """The program for one set of input shapes; raises shape-mismatch or guard-refused."""
        from isa.affine import solve_shape
        from isa.binding import bind
        from nki.verification.hbm_capacity import check_hbm

        program = self.program
        declared = [program.tensors[index].shape for index in program.parameters]
        bound = bind(program, solve_shape(declared, shapes))
        if program.symbols:
            check_hbm(bound)
        return bound

    def _inputs(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> list[np.ndarray]:
        names = self.program.parameter_names
        unknown = [name for name in named if name not in names]
        if unknown or len(arrays) + len(named) != len(names):
            raise NeuronError(
                "input-mismatch",
                f"{self.program.name} takes the tensors {', '.join(names) or '(none)'}; it got "
                f"{len(arrays)} by position and {', '.join(named) or 'none'} by name",
            )
        rest = dict(zip(names, arrays)) | named
        given = [rest[name] for name in names]
        refuse_without_data(zip(given, names))
        self.refuse_lost_writes(given)
        return [as_numpy(value, name) for value, name in zip(given, names)]

    def refuse_lost_writes(self, arrays: Sequence[Any]) -> None:
        """Raise input-mismatch where one of `arrays`, in parameter order, cannot take what the
        kernel writes to it without returning it."""
        tensors, results = self.program.tensors, self.program.results
        for value, index in zip(arrays, self.program.parameters):
            if tensors[index].role == "inout" and index not in results:
                refuse_read_only(value, tensors[index].name)

    def _run(self, inputs: list[np.ndarray], traced: bool = False) -> tuple[Program, RunResult]:
        checked, native = settings.checks_wanted(), settings.native_wanted()
        threads = settings.threads_wanted()
        self._check(inputs)
        key = checked, native, threads, *(array.shape for array in inputs)
        # Taken out while it runs: a call from another thread loads one of its own.
        reference = self._loaded.pop(key, None)
        found = None if reference is None else reference()
        if found is None:
            from simulator.parallel_slices import load

            program = self.program_for(inputs)
            loaded = load(program, checked, native, threads, self._capacity)
            hbm = sum(buffer.nbytes for buffer in loaded.device.tensors)
            found = _Loaded(program, loaded, hbm)
        progress.stage("run")
        with run_settings():
            result = found.loaded.run(inputs, traced)
        self._loaded[key] = weakref.ref(found)
        recent = _RECENT.get()
        if recent is None:
            recent = _Recent()
            _RECENT.set(recent)
        recent.ran(self, found)
        return found.program, result

    def _check(self, inputs: list[np.ndarray]) -> None:
        from isa.dtypes import normalise

        for index, array in zip(self.program.parameters, inputs):
            declaration = self.program.tensors[index]
            dtype, shape = declaration.dtype, declaration.shape
            what = (
                f"{declaration.name} is {dtype}{list(shape)}, the array is "
                f"{array.dtype}{list(array.shape)}"
            )
            if normalise(array.dtype) != dtype:
                hint = f"Convert the array to {dtype}."
                raise NeuronError("input-mismatch", what, hint=hint)
            if len(shape) != array.ndim or any(
                type(size) is int and size != given for size, given in zip(shape, array.shape)
            ):
                raise NeuronError("input-mismatch", what)


@user_frames
def load(path: Any) -> CompiledKernel:
    """A compiled kernel from a container file. Executes no code from it. Unless NKI_CHECKS=0, the
    program is proven as `nki.compile` proves it: a file may have been changed. Proofs that take
    longer than 5 ms are cached by the content of the file (`nki.verification.proofs`).

    Raises file-not-found, hbm-overflow, program-malformed, race, and the errors of
    `isa.files.container.read`.

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def copy(a):
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nisa.dma_copy(dst=out, src=a)
    ...     return out
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "copy.neff")
    ...     nki.compile(copy, nki.TensorSpec((2, 3), nl.float32)).save(path)
    ...     compiled = nki.load(path)
    >>> compiled(np.ones((2, 3), np.float32)).shape
    (2, 3)
    """
    from isa.files.container import load_contents
    from nki.verification.hbm_capacity import check_hbm

    contents = load_contents(path)
    check_hbm(contents.program)
    if settings.checks_wanted():
        from nki.verification.proofs import prove
        from simulator.checks.impossible import refuse_impossible

        refuse_impossible(contents.program)
        prove(contents)
    return CompiledKernel(contents.program)


@contextmanager
def run_settings() -> Iterator[None]:
    """For runs inside, what the environment says: whether what they print goes to files too, and
    whether results may hold what was never written, and what they may take."""
    from simulator.checks.initialised import UNWRITTEN_ALLOWED
    from simulator.printed import printed_to
    from simulator.watchdog import RunLimits, limited

    token = UNWRITTEN_ALLOWED.set(settings.unwritten_allowed())
    limit, usual = settings.loop_limit(), RunLimits()
    limits = RunLimits(
        limit or usual.instructions,
        settings.run_seconds(),
        settings.memory_limit(),
        settings.simulated_seconds(),
        limit or usual.iterations,
    )
    try:
        with printed_to(settings.print_folder()), limited(limits):
            yield
    finally:
        UNWRITTEN_ALLOWED.reset(token)


def add_pictures(found: Profile, program: Program, trace: Any) -> None:
    """Give a profile of a bound program that ran with a control `trace` its page and its timeline.
    For them the program is timed again, as only they need every instruction's start and end."""

    def timeline() -> Timeline:
        from simulator.timing import simulate as time

        return time(program, trace, keep_path=False)

    def write(path: Any, found: Profile, before: Profile | None) -> None:
        from simulator.profile.page import write_html

        write_html(path, program, timeline(), found, before)

    def picture() -> str:
        from simulator.profile.bands import bands

        return bands(timeline())

    found.pages, found.picture = write, picture


def update(inputs: list[np.ndarray], after: list[Any]) -> None:
    """Write what a kernel wrote to its inputs into them."""
    for array, new in zip(inputs, after):
        if new is not None and new is not array and array.flags.writeable:
            array[...] = new


def packed(outputs: list[Any], container: type | None) -> Any:
    """Outputs in their container; without one, one array or none, or a tuple of several."""
    if container is not None:
        return container(outputs)
    if not outputs:
        return None
    return outputs[0] if len(outputs) == 1 else tuple(outputs)
