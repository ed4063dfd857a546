"""Running a kernel function to record its tile IR."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from types import FrameType
from typing import Any

from isa.affine import DECIDE, affine, ceil_division, prove
from isa.collection import collection_paused
from isa.enums import Memory
from isa.errors import NeuronError
from isa.operations.control import RegisterMove, StorageBegin
from isa.spec import Operation
from isa.target import Target
from nki.ir.context import CURRENT, Context, Location, NkiInstruction, of_another_run
from nki.ir.guards import Guards
from nki.ir.locations import (
    call_path,
    error_location,
    is_call,
    resolve,
    variable_name,
)
from nki.ir.nodes import Access, Kernel, Loop, Node, Op, Register, Tensor, While, operations
from nki.ir.open_loops import OpenLoop, never_written
from nki.ir.registers import VirtualRegister
from nki.ir.results import SharedTensors, constant_written, results_of
from nki.ir.unset_registers import refuse_never_written
from nki.ir.views.layout import dense_strides
from nki.ir.views.tensor import NkiTensor, strided
from nki.trace.call import (
    call_arguments,
    function_of,
    map_tensors,
    spec_of,
    symbols_in,
    tensors_in,
)
from nki.trace.loops import (
    Body,
    Comparison,
    Scopes,
    registers_written,
    trip_count,
    whole_trips,
)

_new = object.__new__
_dense_strides = lru_cache(1 << 12)(dense_strides)

Site = tuple[str, Location, tuple[Any, ...]]
"""The variable that new tensors go to, and objects that they share: their location and shape."""


class TracedLoop(OpenLoop):
    """A rolled loop that is being traced: its bodies so far, and what to return to."""

    __slots__ = ("bodies", "outer")

    def __init__(
        self,
        outer: list[Node],
        location: Location,
        register: Register | None = None,
        frame: FrameType | None = None,
    ) -> None:
        super().__init__(location, register, frame)
        self.outer = outer
        self.bodies: list[Body] = []


class Tracer(Context):
    """Records the operations of one core into `nodes`, the block being traced.

    `tensors` are all tensors of the kernel so far, in order of their numbers; `shared` pairs the
    cores' shared HBM tensors.
    """

    def __init__(
        self,
        target: Target,
        core: int,
        cores: int,
        tensors: list[Tensor],
        shared: SharedTensors,
        first_tensor: int,
    ) -> None:
        super().__init__(target, core, cores)
        self.nodes: list[Node] = []
        self.tensors = tensors
        self.shared = shared
        self.rolled = False
        self._tensor = first_tensor
        self._register = 0
        self._registers: list[Register] = []
        self._labels: dict[str, int] = {}
        self._labelled: list[str] = []
        self._sites: dict[Any, Site] = {}
        self.loops.ordered = 0
        self._previous: NkiInstruction | None = None

    # Operations

    def record(
        self,
        row: type[Operation],
        values: tuple[Any, ...],
        location: Location,
        name: str | None = None,
    ) -> NkiInstruction:
        op: NkiInstruction = _new(NkiInstruction)
        op.row = row
        op.values = values
        op.location = location
        op.name = name
        if self.loops.ordered:
            op.after = () if self._previous is None else (self._previous,)
            self._previous = op
        else:
            op.after = ()
        self.nodes.append(op)
        return op

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
        if dtype in self.kept_wide:
            dtype = "float32"
        if memory is Memory.shared_hbm:
            storage = self._shared(shape, dtype, name, location, data)
        else:
            variable, location, shape = self._site(location, shape)
            label = name or variable
            storage = Tensor(
                self._tensor,
                label,
                memory,
                dtype,
                shape,
                "local",
                address,
                self.core,
                location,
                None,
                self._copy(label),
            )
            self._tensor += 1
            self.tensors.append(storage)
        first = 0 if address is None else address[0]
        view = strided(storage, dtype, shape, _dense_strides(shape), 0, first)
        if memory is not Memory.shared_hbm:
            op: NkiInstruction = _new(NkiInstruction)
            op.row = StorageBegin
            op.values = (view,)
            op.location = location
            op.name = None
            op.after = ()
            self.nodes.append(op)
        return view

    def _shared(
        self, shape: tuple[Any, ...], dtype: str, name: str, location: Location, data: Any
    ) -> Tensor:
        """The shared HBM tensor that every core gets from its call at this place."""
        self.loops.refuse_shared()
        path = () if self.cores == 1 else call_path(_run.__code__)
        paired = self.shared.pair(self.core, name, path, shape, dtype, location, data)
        if paired is not None:
            return paired
        label = name or variable_name(location, "tensor")
        role = "local" if data is None else "constant"
        storage = Tensor(
            self._tensor,
            label,
            Memory.shared_hbm,
            dtype,
            shape,
            role,
            location=location,
            data=data,
            copy=self._copy(label),
        )
        self._tensor += 1
        self.tensors.append(storage)
        self.shared.add(self.core, name, path, storage)
        return storage

    def _site(self, location: Location, shape: tuple[Any, ...]) -> Site:
        """What tensors of one shape that one line makes have in common. Hashing a code object takes
        longer than its identity."""
        key = (id(location[0]), location[1], shape)
        site = self._sites.get(key)
        if site is None:
            site = self._sites[key] = variable_name(location, "tensor"), location, shape
        return site

    def _copy(self, label: str) -> int:
        """How many tensors of this core have had a label."""
        count = self._labels.get(label, 0)
        self._labels[label] = count + 1
        self._labelled.append(label)
        return count

    # Registers

    def new_register(self, name: str, location: Location) -> VirtualRegister:
        register = VirtualRegister(
            self._register, name or variable_name(location, "register"), location
        )
        self._register += 1
        self._registers.append(register)
        return register

    def _variable(self, location: Location, lower: Any, upper: Any) -> VirtualRegister:
        """The variable of a loop, with its inclusive bounds (None: known at run time only)."""
        name = variable_name(location, "i")
        variable = VirtualRegister(self._register, name, location, lower, upper, True)
        self._register += 1
        return variable

    # Loops

    def symbolic_range(
        self, lower: Any, upper: Any, step: int, location: Location
    ) -> Iterator[Any]:
        """Two traces of a general iteration, then one of the last partial iteration if any."""
        self.loops.refuse_order("a loop over a launch symbol", location)
        trips = ceil_division(upper - lower, step)
        whole = whole_trips(trips)
        middle = upper if whole is trips else lower + step * whole
        if prove(whole, "<=") is not True:
            loop = self._open(location, whole)
            for _ in range(2):
                variable = self._variable(location, lower, lower + step * (whole - 1))
                self._begin(loop, variable)
                with loop:
                    yield affine(variable)
                self.loops.expect(loop)
            self._drop(loop.bodies[1])
            nodes = self._close(loop, lower)
            kept = loop.bodies[0].variable
            assert kept is not None
            self.nodes.append(Loop(kept, lower, middle, step, nodes, True, location))
        if whole is trips:
            return
        loop = self._open(location, trips - whole)
        variable = self._variable(location, middle, middle)
        self._begin(loop, variable)
        with loop:
            yield middle
        self.loops.leave(loop)
        self.nodes = loop.outer
        body = loop.bodies[0].nodes
        self.nodes.append(Loop(variable, middle, upper, step, body, False, location))

    def dynamic_range(
        self, lower: Any, upper: Any, step: int, location: Location
    ) -> Iterator[VirtualRegister]:
        self.loops.refuse_order("a loop on the device", location)
        trips = trip_count(lower, upper, step)
        if trips is not None and prove(trips, "<=") is True:
            return
        loop = self._open(location, trips)
        bottom = None if isinstance(lower, Register) else lower
        top = None if trips is None else lower + step * (trips - 1)
        for _ in range(2):
            variable = self._variable(location, bottom, top)
            self._begin(loop, variable)
            with loop:
                yield variable
            self.loops.expect(loop)
        written = set(registers_written(loop.bodies[0].nodes))
        self._drop(loop.bodies[1])
        copies: list[Node] = []
        lower = self._own_bound(lower, written, copies, location)
        upper = self._own_bound(upper, written, copies, location)
        nodes = self._close(loop, lower)
        self.nodes.extend(copies)
        kept = loop.bodies[0].variable
        assert kept is not None
        self.nodes.append(Loop(kept, lower, upper, step, nodes, False, location))

    def _own_bound(
        self, bound: Any, written: set[Register], copies: list[Node], location: Location
    ) -> Any:
        """A loop bound that the body does not write: bounds are read once."""
        if not isinstance(bound, Register) or bound not in written:
            return bound
        copy = self.new_register(f"{bound.name}_bound", location)
        copies.append(NkiInstruction(RegisterMove, (copy, bound), location))
        return copy

    def while_condition(
        self, register: VirtualRegister, location: Location, frame: FrameType
    ) -> bool:
        loop = self.loops.repeated(register, location, frame)
        if loop is None:
            self.loops.check_while(register, location, frame)
            self._begin(self._open(location, None, register, frame), None)
            return True
        if len(loop.bodies) == 1:
            self._begin(loop, None)
            return True
        self._drop(loop.bodies[1])
        nodes = self._close(loop, None)
        if register not in set(registers_written(nodes)):
            raise never_written(register, location)
        self.nodes.append(While(register, nodes, loop.location))
        return False

    def _open(
        self,
        location: Location,
        trips: Any,
        register: Register | None = None,
        frame: FrameType | None = None,
    ) -> TracedLoop:
        self.rolled = True
        loop = TracedLoop(self.nodes, location, register, frame)
        self.loops.enter(loop, trips)
        return loop

    def _begin(self, loop: TracedLoop, variable: Register | None) -> None:
        """Trace another copy of the loop's body."""
        number = self._register if variable is None else variable.number
        body = Body(self._tensor, number, variable)
        loop.bodies.append(body)
        self.nodes = body.nodes

    def _close(self, loop: TracedLoop, start: Any) -> list[Node]:
        """The loop's one body. The second one was dropped."""
        self.loops.leave(loop)
        first, second = loop.bodies
        _refuse_others(first.nodes, set(self.tensors))
        nodes = Comparison(first, second, start).merge()
        self.nodes = loop.outer
        return nodes

    def _drop(self, body: Body) -> None:
        """Names and numbers go on as if the body, the last that was traced, had not been."""
        dropped = self._tensor - body.tensor
        if dropped:
            del self.tensors[-dropped:]
            for label in self._labelled[-dropped:]:
                self._labels[label] -= 1
            del self._labelled[-dropped:]
        self._tensor, self._register = body.tensor, body.register

    def finish(self) -> None:
        """The kernel function returned: no loop may be open, nothing used outside its loop."""
        self.loops.finish()
        if self.rolled:
            known = {t for t in self.tensors if t.memory is Memory.shared_hbm or t.role != "local"}
            Scopes(known).check(self.nodes, StorageBegin)
        if self._registers:
            refuse_never_written(self.nodes, self._registers)
        _refuse_others(self.nodes, set(self.tensors))
        _mark_written(self.nodes)

    # Order

    def enter_no_reorder(self, location: Location) -> None:
        self.loops.ordered += 1

    def exit_no_reorder(self) -> None:
        self.loops.ordered -= 1
        if not self.loops.ordered:
            self._previous = None


def _mark_written(nodes: list[Node]) -> None:
    """Inputs that operations write to become "inout". Raises value-not-allowed for constants that
    they write to."""
    for node in nodes:
        if not isinstance(node, Op):
            _mark_written(node.body)
            continue
        for index in node.row.hbm_writes:
            storage = node.values[index].storage
            if storage.role == "input":
                storage.role = "inout"
            elif storage.role == "constant":
                raise constant_written(storage, node.location)


def _refuse_others(nodes: list[Node], own: set[Tensor]) -> None:
    """Raises value-not-allowed for a tensor that is none of this kernel's `own`."""
    used: set[Tensor] = set()
    _collect(nodes, used)
    if used <= own:
        return
    for node in operations(nodes):
        for value in node.values:
            if isinstance(value, Access) and value.storage not in own:
                raise of_another_run(value.storage, node.location)


def _collect(nodes: list[Node], used: set[Tensor]) -> None:
    """Add the tensors that operations access."""
    add = used.add
    for node in nodes:
        if isinstance(node, Op):
            values = node.values
            for index, _ in node.row.accesses:
                value = values[index]
                if isinstance(value, Access):
                    add(value.storage)
        else:
            _collect(node.body, used)


def trace(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    target: Target,
    cores: int = 1,
) -> Kernel:
    """The tile IR of a kernel function for these arguments, one body per core.

    `arguments` are by parameter name: arrays and `TensorSpec`s become HBM tensors (shared HBM with
    several cores), everything else is passed through. Raises NeuronError with the kernel's line.
    """
    function = function_of(function)
    memory = Memory.shared_hbm if cores > 1 else Memory.private_hbm
    specs = [spec_of(value, name) for value, name in tensors_in(arguments)]
    names = _distinct([spec.name for spec in specs])
    symbols = symbols_in(specs)
    owner = 0 if cores == 1 else None
    parameters = [
        Tensor(number, name, memory, spec.dtype, spec.shape, "input", core=owner)
        for number, (name, spec) in enumerate(zip(names, specs))
    ]
    tensors = list(parameters)
    guards = Guards()
    shared = SharedTensors()
    bodies, results = [], []
    with collection_paused():
        for core in range(cores):
            tracer = Tracer(target, core, cores, tensors, shared, len(tensors))
            returned = _run(function, _views(arguments, parameters), tracer, guards)
            results.append(results_of(returned, function))
            bodies.append(tracer.nodes)
    kernel_results = shared.agreed(results)
    for tensor in kernel_results:
        if tensor.role == "local":
            tensor.role = "output"
        elif tensor.role == "input":
            tensor.role = "inout"
    return Kernel(
        function.__name__,
        target.name,
        parameters,
        names,
        kernel_results,
        bodies,
        tensors,
        list(symbols),
        guards.conditions,
    )


def _run(
    function: Callable[..., Any], arguments: dict[str, Any], tracer: Tracer, guards: Guards
) -> Any:
    """Call the kernel function with the tracer as context; errors get the kernel's line."""
    args, kwargs = call_arguments(function, arguments)
    context, decide = CURRENT.set(tracer), DECIDE.set(guards.decide)
    try:
        returned = function(*args, **kwargs)
        tracer.finish()
        return returned
    except NeuronError as error:
        tracer.explain_shapes(error)
        if error.location is None:
            location = error_location(error)
            error.location = resolve(location)
            if error.code == "symbol-index" and location is not None and is_call(location, "range"):
                raise _range_error(error) from None
        raise
    finally:
        CURRENT.reset(context)
        DECIDE.reset(decide)


def _range_error(error: NeuronError) -> NeuronError:
    """What a launch symbol in Python's `range` is: not just any symbol used as an integer."""
    found = NeuronError(
        "symbol-range", what=f"range() over a launch symbol: {error.what}", location=error.location
    )
    return found.with_traceback(error.__traceback__)


def _views(arguments: dict[str, Any], parameters: list[Tensor]) -> dict[str, Any]:
    """The arguments with every array and specification replaced by a view of its parameter."""
    remaining = iter(parameters)

    def view(value: Any, name: str) -> NkiTensor:
        tensor = next(remaining)
        return strided(tensor, tensor.dtype, tensor.shape, dense_strides(tensor.shape))

    return {name: map_tensors(value, name, view) for name, value in arguments.items()}


def _distinct(names: list[str]) -> list[str]:
    """Parameter names, those that occur twice with a number."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        count = seen.get(name, 0)
        seen[name] = count + 1
        result.append(f"{name}.{count}" if count else name)
    return result
