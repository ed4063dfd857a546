"""Building the body of one core: operations, tensors, registers and loops become nodes.

`CoreBuilder` is the part that everybody has in common who makes tile IR: `builder`, which is
called with explicit locations, and the tracer, which runs an author's Python. Eager mode has its
tensors and registers from here too, and executes operations instead of keeping them.

A builder's body is built once. Tensors stand in `nki.ir.views`, so operands are made by indexing.
Locations and names come from the caller of a builder, and from Python's frames for a tracer. All
hand a row and values to `nki.ir.builder.emission`.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType
from typing import Any

from isa.affine import affine, ceil_division, prove
from isa.enums import Memory
from isa.errors import NeuronError
from isa.operations.control import RegisterMove, StorageBegin
from isa.spec import Operation
from nki.ir.builder.assignment import assign
from nki.ir.builder.declarations import Declarations
from nki.ir.builder.loops import (
    BuiltBody,
    RolledLoop,
    Scopes,
    counted,
    registers_written,
    whole_trips,
)
from nki.ir.builder.registers import VirtualRegister
from nki.ir.builder.results import constant_written
from nki.ir.checks.hazards import Hazards
from nki.ir.checks.unset_registers import refuse_never_written
from nki.ir.context import Context, Location, NkiInstruction, of_another_run
from nki.ir.locations import name_for_caller, resolve, tensor_name, variable_name
from nki.ir.nodes import Access, Loop, Node, Op, Register, Tensor, While, operations
from nki.ir.open_loops import never_written
from nki.ir.views.layout import dense_strides
from nki.ir.views.shape_views import new_view
from nki.ir.views.tensor import NkiTensor

_new = object.__new__

Site = tuple[str | None, Location, tuple[Any, ...], tuple[Any, ...]]
"""The variable that new tensors go to (None: that of the caller), and objects that they share:
their location, shape and strides."""


class CoreBuilder(Context):
    """Puts the operations of one core into `nodes`, the block that is being built."""

    def __init__(self, declarations: Declarations, core: int) -> None:
        super().__init__(declarations.target, core, declarations.cores)
        self.declarations = declarations
        self.nodes: list[Node] = []
        self.rolled = False
        self._register = 0
        self._registers: list[Register] = []
        self._labels: dict[str, int] = {}
        self._labelled: list[str] = []
        self._sites: dict[Any, Site] = {}
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
        variable, location, shape, strides = self._site(location, shape)
        if memory is Memory.shared_hbm:
            storage = self._shared(shape, dtype, name, location, data)
        else:
            label = name or variable or name_for_caller(location)
            storage = self._tensor(label, memory, dtype, shape, address, self.core, location, data)
        first = 0 if address is None else address[0]
        view = new_view(NkiTensor, storage, dtype, shape, strides, 0, first)
        if memory is not Memory.shared_hbm:
            self._begin_storage(view, location)
        return view

    def _tensor(
        self,
        label: str,
        memory: Memory,
        dtype: str,
        shape: tuple[Any, ...],
        address: tuple[int, int] | None,
        core: int | None,
        location: Location,
        data: Any = None,
    ) -> Tensor:
        """Another tensor of the kernel."""
        tensors = self.declarations.tensors
        copy = self._labels.get(label, 0)
        self._labels[label] = copy + 1
        self._labelled.append(label)
        role = "local" if data is None else "constant"
        storage = Tensor(
            len(tensors), label, memory, dtype, shape, role, address, core, location, data, copy
        )
        tensors.append(storage)
        return storage

    def _shared(
        self, shape: tuple[Any, ...], dtype: str, name: str, location: Location, data: Any
    ) -> Tensor:
        """A tensor in shared HBM, which is of all cores. Constants are the same in each trip."""
        if data is None:
            self.loops.refuse_shared()
        label = name or name_for_caller(location)
        return self._tensor(label, Memory.shared_hbm, dtype, shape, None, None, location, data)

    def assign(self, view: NkiTensor, value: Any, location: Location) -> None:
        assign(self, view, value, location)

    def _begin_storage(self, view: NkiTensor, location: Location) -> None:
        """A tensor of this core begins here."""
        op: NkiInstruction = _new(NkiInstruction)
        op.row = StorageBegin
        op.values = (view,)
        op.location = location
        op.name = None
        op.after = ()
        self.nodes.append(op)

    def _site(self, location: Location, shape: tuple[Any, ...]) -> Site:
        """What tensors of one shape that one line makes have in common. Hashing a code object takes
        longer than its identity."""
        key: Any = (location, shape)
        if location.__class__ is tuple:
            key = (id(location[0]), location[1], shape)
        site = self._sites.get(key)
        if site is None:
            name, strides = tensor_name(location), dense_strides(shape)
            site = self._sites[key] = name, location, shape, strides
        return site

    # Registers

    def new_register(self, name: str, location: Location) -> VirtualRegister:
        register = VirtualRegister(
            self._register, name or variable_name(location, "register"), location
        )
        self._register += 1
        self._registers.append(register)
        return register

    def _variable(
        self, location: Location, lower: Any, upper: Any, name: str = ""
    ) -> VirtualRegister:
        """The variable of a loop, with its inclusive bounds (None: known at run time only)."""
        name = name or variable_name(location, "i")
        variable = VirtualRegister(self._register, name, location, lower, upper, True)
        self._register += 1
        return variable

    # Loops

    def times(self) -> int:
        """How often the body of a rolled loop is built."""
        return 1

    def symbolic_range(
        self, lower: Any, upper: Any, step: int, location: Location
    ) -> Iterator[Any]:
        """A general iteration, `times()` times; then the last partial one if there is any."""
        self.loops.refuse_order("a loop over a launch symbol", location)
        trips = ceil_division(upper - lower, step)
        whole = whole_trips(trips)
        middle = upper if whole is trips else lower + step * whole
        if prove(whole, "<=") is not True:
            loop = self._open(location, whole)
            for variable in self._bodies(loop, lower, lower + step * (whole - 1)):
                yield affine(variable)
            self._append_loop(loop, lower, middle, step, True)
        if whole is trips:
            return
        loop = self._open(location, trips - whole, repeats=False)
        variable = self._variable(location, middle, middle)
        self._begin(loop, variable)
        with loop:
            yield middle
        body = self._leave(loop, middle)
        self.nodes.append(Loop(variable, middle, upper, step, body, False, location))

    def dynamic_range(
        self, lower: Any, upper: Any, step: int, location: Location
    ) -> Iterator[VirtualRegister]:
        self.loops.refuse_order("a loop on the device", location)
        trips, first, last = counted(lower, upper, step)
        if trips is not None and prove(trips, "<=") is True:
            return
        loop = self._open(location, trips)
        yield from self._bodies(loop, first, last)
        self._append_loop(loop, lower, upper, step, False)

    def _bodies(self, loop: RolledLoop, first: Any, last: Any) -> Iterator[VirtualRegister]:
        """Build the body of a loop whose variable has these values at least and at most."""
        for _ in range(self.times()):
            variable = self._variable(loop.location, first, last)
            self._begin(loop, variable)
            with loop:
                yield variable
            self.loops.expect(loop)

    def _append_loop(self, loop: RolledLoop, lower: Any, upper: Any, step: int, roll: bool) -> None:
        """The loop is complete. A bound that its body writes gets a register of its own: bounds are
        read once."""
        written = set(registers_written(loop.bodies[0].nodes))
        copies: list[Node] = []
        lower = self._own_bound(lower, written, copies, loop.location)
        upper = self._own_bound(upper, written, copies, loop.location)
        body = self._leave(loop, lower)
        variable = loop.bodies[0].variable
        assert variable is not None
        self.nodes += copies
        self.nodes.append(Loop(variable, lower, upper, step, body, roll, loop.location))

    def _own_bound(
        self, bound: Any, written: set[Register], copies: list[Node], location: Location
    ) -> Any:
        """A loop bound that the body does not write."""
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
        if len(loop.bodies) < self.times():
            self._begin(loop, None)
            return True
        self._append_while(loop, location)
        return False

    def _append_while(self, loop: RolledLoop, location: Location) -> None:
        """The `while` is complete. Raises value-not-allowed if its body never writes its
        condition."""
        body = self._leave(loop, None)
        assert loop.register is not None
        if loop.register not in set(registers_written(body)):
            raise never_written(loop.register, location)
        self.nodes.append(While(loop.register, body, loop.location))

    def _open(
        self,
        location: Location,
        trips: Any,
        register: Register | None = None,
        frame: Any = None,
        repeats: bool = True,
    ) -> RolledLoop:
        """A rolled loop begins, of so many iterations (None: only the device knows how many);
        `repeats` says whether there may be more than one. Raises register-overflow."""
        self.rolled = True
        registers = self.declarations.target.registers_per_engine.value
        if len(self.loops) >= registers:
            raise NeuronError(
                "register-overflow",
                f"more than {registers} rolled loops are nested",
                location=resolve(location),
            )
        loop = RolledLoop(self.nodes, location, register, frame)
        self.loops.enter(loop, trips)
        return loop

    def _begin(self, loop: RolledLoop, variable: Register | None) -> None:
        """Build the loop's body (again)."""
        number = self._register if variable is None else variable.number
        body = BuiltBody(len(self.declarations.tensors), number, variable)
        loop.bodies.append(body)
        self.nodes = body.nodes

    def _leave(self, loop: RolledLoop, start: Any) -> list[Node]:
        """The body of a loop that begins at `start` (None: a `while`) and ends here."""
        self.loops.leave(loop)
        self.nodes = loop.outer
        return loop.bodies[0].nodes

    def finish(self) -> None:
        """The body is complete: no loop may be open, nothing used outside its loop."""
        self.loops.finish()
        tensors = self.declarations.tensors
        if self.rolled:
            known = {t for t in tensors if t.memory is Memory.shared_hbm or t.role != "local"}
            Scopes(known).check(self.nodes)
        if self._registers:
            refuse_never_written(self.nodes, self._registers)
        refuse_others(self.nodes, tensors)
        _mark_written(self.nodes)
        Hazards(self.warn).follow(self.nodes)

    # Order

    def enter_no_reorder(self) -> None:
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


def refuse_others(nodes: list[Node], own: list[Tensor]) -> None:
    """Raises value-not-allowed for a tensor that is none of this kernel's `own`, by number."""
    used: set[Tensor] = set()
    _collect(nodes, used)
    others = {t for t in used if t.number >= len(own) or own[t.number] is not t}
    if not others:
        return
    for node in operations(nodes):
        for value in node.values:
            if isinstance(value, Access) and value.storage in others:
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
