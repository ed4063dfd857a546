"""The interface between the public API and what runs a kernel's operations: tracer, eager mode.

`nki.isa` and `nki.language` normalise and check, then hand each operation to the current
`Context`: the tracer builds tile IR, the eager context computes at once.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from types import FrameType
from typing import TYPE_CHECKING, Any

from isa.enums import Memory
from isa.errors import NeuronError
from isa.errors.warned import warn
from isa.operations.control import RegisterLoad, RegisterMove
from isa.rules import OperationCall
from isa.spec import Operation
from isa.target import Target
from nki.ir.accumulate import Accumulation
from nki.ir.locations import author_location, resolve
from nki.ir.no_result import NoResult
from nki.ir.nodes import Op
from nki.ir.open_loops import OpenLoops
from nki.precision import kept_wide

if TYPE_CHECKING:
    from nki.ir.builder.registers import VirtualRegister
    from nki.ir.views.tensor import NkiTensor

Location = Any
"""Where an operation comes from: a code object and the offset of the instruction in it, where an
author's code called, which `nki.ir.locations.resolve` turns into a file, a line and columns; or
such a `SourceLocation`, or None."""


class NkiInstruction(NoResult, Op):
    """An operation as the author sees it: the handle that every `nki.isa` call returns.

    Source: SDK nki/api/nki/isa/__init__.py (NkiInstruction).

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def kernel(a):
    ...     tile = nl.load(a)
    ...     first = nisa.memset(dst=tile[:, 0:1], value=1.0)
    ...     nisa.memset(dst=tile[:, 1:2], value=2.0).depends_on(first)
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, tile)
    ...     return out
    >>> print(kernel(np.zeros((1, 3), np.float32)))
    [[1. 2. 0.]]
    """

    __slots__ = ()

    def depends_on(self, *producers: NkiInstruction) -> NkiInstruction:
        """Run after every one of `producers`. Returns self."""
        for producer in producers:
            if not isinstance(producer, Op):
                raise NeuronError(
                    "value-not-allowed",
                    what=f"depends_on() got {type(producer).__name__}, not an instruction",
                    hint="Pass what a nki.isa call returned.",
                )
        self.after = (*self.after, *producers)
        return self


def of_another_run(tensor: Any, location: Any) -> NeuronError:
    """The error of an operation on a tensor that a kernel made when it ran before."""
    return NeuronError(
        "value-not-allowed",
        what=f"tensor {tensor.name!r} was made in another run of a kernel",
        why="Tensors of a kernel exist while it runs; what keeps one for longer, a cache or a "
        "global name, hands it to the next run.",
        hint="Make it in the kernel that uses it, or keep its data and take nl.shared_constant.",
        location=resolve(location),
    )


def branch_on(register: Any) -> NeuronError:
    """The error of a branch of Python on what a register holds."""
    name = f"register {register.name!r}" if register.name else "a register"
    return NeuronError(
        "register-branch", what=f"a branch on {name}, whose value only the device has"
    )


_SHAPES = ("shape-mismatch", "contraction-mismatch")
_MOST_SLICES = 4
"""Slices that an error about shapes mentions."""


class UncheckedAssertWarning(RuntimeWarning):
    """An `assert` on what a tensor holds, where that is not known."""


class WarnedOnce:
    """Warns of the catalogue at lines of a kernel, once each. No context is kept by it: eager
    contexts have the memory of devices, and should go when nobody needs them."""

    __slots__ = ("_warned",)

    def __init__(self) -> None:
        self._warned: set[tuple[str, Location]] = set()

    def __call__(self, code: str, what: str, location: Location, hint: str = "") -> None:
        if (code, location) not in self._warned:
            self._warned.add((code, location))
            warn(code, what, resolve(location), hint)


class Context:
    """What the public API needs of whoever runs the operations. One per core.

    `target` is the device that the kernel is for, `core` this core's number of `cores`.
    Subclasses implement the methods that raise NotImplementedError.
    """

    def __init__(self, target: Target, core: int = 0, cores: int = 1) -> None:
        self.target = target
        self.core = core
        self.cores = cores
        self.accumulation = Accumulation(target.generation)
        self.loops = OpenLoops(self.accumulation)
        self.kept_wide = kept_wide()
        self._cut_slices: dict[Location, str] = {}
        self.warn = WarnedOnce()

    def suspected(self, row: type[Operation], values: tuple[Any, ...], location: Location) -> bool:
        """Whether a use is one of those that its row warns of; warns."""
        found = False
        for suspicion in row.suspicions:
            what = suspicion.check(OperationCall(row.field_names, values, self.target))
            if what is not None:
                found = True
                self.warn(suspicion.code, f"nisa.{row.name}: {what}", location)
        return found

    # Slices

    def slice_was_cut(self, stop: Any, size: Any, dimension: int) -> None:
        """A slice ends past its tensor and stops at the end, as in Python."""
        location = author_location()
        if location is not None:
            what = f"to {stop} of dimension {dimension}, whose size is {size}"
            self._cut_slices.setdefault(location, what)

    def explain_shapes(self, error: NeuronError) -> None:
        """To an error about shapes, adds the slices that have fewer elements than they say."""
        if error.code not in _SHAPES:
            return
        for location, what in list(self._cut_slices.items())[:_MOST_SLICES]:
            place = resolve(location)
            assert place is not None
            note = f"The slice {what}, ends there (as in Python): {place.file}:{place.line}"
            error.notes = (*error.notes, note)

    # Operations

    def record(
        self,
        row: type[Operation],
        values: tuple[Any, ...],
        location: Location,
        name: str | None = None,
    ) -> NkiInstruction:
        """One operation, checked and resolved; `values` align with `row.field_names`."""
        raise NotImplementedError

    def accumulate(self, dst: Any, accumulate: Any) -> Any:
        """The `accumulate` flag of a matmul into the PSUM view `dst`; None is inferred."""
        return self.accumulation.matmul(dst, accumulate)

    def overwritten(self, dst: Any) -> None:
        """Another instruction than a matmul writes to the PSUM view `dst`."""
        self.accumulation.overwritten(dst)

    # Storage

    def allocate(
        self,
        shape: tuple[Any, ...],
        dtype: str,
        memory: Memory,
        name: str,
        address: tuple[int, int] | None,
        location: Location,
        data: Any = None,
    ) -> NkiTensor:
        """New storage, and the view of all of it. Arguments are checked; `data` (a NumPy array)
        makes a constant."""
        raise NotImplementedError

    def assign(self, view: NkiTensor, value: Any, location: Location) -> None:
        """`view[...] = value`, of a tensor or a number."""
        raise NotImplementedError

    def preview(self, tensor: NkiTensor) -> str:
        """The data of a view as text below its description: nothing, unless it has some now."""
        return ""

    def contents(self, tensor: NkiTensor) -> Any:
        """The data of a view as an array; None where it has none now."""
        return None

    def holds(self, tensor: NkiTensor, location: Location) -> bool:
        """Whether no element of a tensor is 0, as an `assert` at `location` says. What is not known
        is taken for granted, with a warning."""
        place = resolve(location)
        assert place is not None
        warnings.warn_explicit(
            "this assert checks nothing here: what tensors hold is not known while a kernel is "
            "traced. In eager mode all elements must hold: nki.simulate(kernel, mode='eager').",
            UncheckedAssertWarning,
            place.file,
            place.line,
        )
        return True

    def value_of(self, register: VirtualRegister) -> int | None:
        """What a register holds now, if that is known."""
        return None

    # Registers

    def new_register(self, name: str, location: Location) -> VirtualRegister:
        """A register that holds nothing yet."""
        raise NotImplementedError

    def register_alloc(self, value: Any, location: Location) -> VirtualRegister:
        """A new register holding `value` (int, another register), or nothing yet with None."""
        register = self.new_register("", location)
        if value is not None:
            self.record(RegisterMove, (register, value), location)
        return register

    def register_from_tensor(self, tensor: NkiTensor, location: Location) -> VirtualRegister:
        """A new register with the one element of an SBUF tensor."""
        register = self.new_register("", location)
        self.record(RegisterLoad, (register, tensor), location)
        return register

    # Loops

    def symbolic_range(
        self, lower: Any, upper: Any, step: int, location: Location
    ) -> Iterator[Any]:
        """The loop of `nl.affine_range` over a launch symbol; yields index forms."""
        raise NotImplementedError

    def dynamic_range(
        self, lower: Any, upper: Any, step: int, location: Location
    ) -> Iterator[VirtualRegister]:
        """The loop of `nl.dynamic_range`: bounds are ints, polynomials or registers."""
        raise NotImplementedError

    def while_condition(
        self, register: VirtualRegister, location: Location, frame: FrameType
    ) -> bool:
        """One evaluation of the condition of a `while` at `location`, by `frame`: whether the body
        is to be run (again)."""
        raise NotImplementedError

    def truth(self, register: VirtualRegister, frame: FrameType) -> bool:
        """What Python gets that asks for the truth of a register in `frame`."""
        raise branch_on(register)

    # Order

    def enter_no_reorder(self) -> None:
        """Operations from here on keep their order, until the matching `exit_no_reorder`."""
        raise NotImplementedError

    def exit_no_reorder(self) -> None:
        raise NotImplementedError


CURRENT: ContextVar[Context | None] = ContextVar("nki_context", default=None)
"""The context of the kernel that this thread of control is running, if any."""


def current(operation: str = "this operation") -> Context:
    """The running kernel's context; raises no-tracer outside kernels."""
    context = CURRENT.get()
    if context is None:
        raise NeuronError(
            "no-tracer",
            what=f"{operation} was called outside a kernel",
            location=resolve(author_location()),
        )
    return context


def caller() -> Location:
    """The place from which the function was called that calls this one."""
    frame = sys._getframe(2)
    return frame.f_code, frame.f_lasti
