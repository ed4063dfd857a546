"""Tile IR made without a function of an author: rows, tensors, loops and conditions by call.

A `Builder` checks what it is given by the rules that kernels are checked by, and raises the same
errors, at the location that it was given. `nki.ir.builder.inline` puts finished kernels into one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from isa.affine import DECIDE, Affine, affine, prove, prove_nonnegative
from isa.dtypes import normalise
from isa.enums import Memory
from isa.errors import NeuronError
from isa.operations.control import RegisterLoad, RegisterMove
from isa.spec import OPERATIONS, Operation
from isa.target import Target, resolve
from isa.wording import did_you_mean
from nki.ir import locations
from nki.ir.builder.allocation import allocate, constant_data, sizes_of
from nki.ir.builder.core_builder import CoreBuilder
from nki.ir.builder.declarations import Declarations
from nki.ir.builder.edges import check_edges
from nki.ir.builder.emission import emit
from nki.ir.builder.groups import Matmul, PsumBlock
from nki.ir.builder.loops import RolledLoop, check_step, counted, loop_bound
from nki.ir.builder.registers import VirtualRegister
from nki.ir.builder.results import Results, result_of, returned
from nki.ir.context import CURRENT, Location, NkiInstruction
from nki.ir.nodes import Node, Register, Tensor, TracedKernel, While, bytes_of
from nki.ir.views.layout import dense_strides
from nki.ir.views.tensor import NkiTensor, strided
from nki.precision import stored


class Builder(CoreBuilder):
    """Builds a kernel for `cores` cores of a target. What it is told goes to core 0; `on(core)` is
    the builder of another core of the same kernel.

    Tensors are `nl.NkiTensor`s, so that operands are made by indexing them. Loops and conditions
    are `with` blocks, whose bodies are built once. `location` says where something comes from (a
    `SourceLocation`, or a code object and an offset); where it is left out, `at` does. Errors of
    the catalogue have that location.

    >>> from isa.alu import ALU
    >>> from isa.enums import Memory
    >>> from nki.ir.views.indexing import ds
    >>> b = Builder("trn2", name="doubled")
    >>> a = b.parameter((256, 64), "float32", "a")
    >>> out = b.tensor((256, 64), "float32", Memory.shared_hbm, "out")
    >>> with b.loop(0, 256, 128) as row:
    ...     tile = b.tensor((128, 64), "float32", name="tile")
    ...     load = b.emit("dma_copy", dst=tile, src=a[ds(row, 128), :])
    ...     product = b.emit("tensor_scalar", dst=tile, data=tile, op0=ALU["multiply"], operand0=2)
    ...     store = b.emit("dma_copy", dst=out[ds(row, 128), :], src=tile)
    >>> b.result(out)
    >>> [node.step for node in b.kernel().bodies[0]]
    [128]
    """

    def __init__(self, target: Target | str, cores: int = 1, name: str = "kernel") -> None:
        device = resolve(target)
        if cores not in device.logical_core_sizes:
            raise NeuronError(
                "core-mismatch",
                what=f"a kernel for {cores} cores of {device.name}, whose logical cores have "
                f"{' or '.join(map(str, device.logical_core_sizes))}",
            )
        self._join(Declarations(name, device, cores), 0, [])
        for core in range(1, cores):
            self.__class__.__new__(self.__class__)._join(self.declarations, core, self._cores)

    def _join(self, declarations: Declarations, core: int, cores: list[Builder]) -> None:
        CoreBuilder.__init__(self, declarations, core)
        self._cores = cores
        self._blocks: list[PsumBlock] = []
        cores.append(self)

    def on(self, core: int) -> Builder:
        """The builder of one core of this kernel."""
        if core not in range(self.cores):
            raise NeuronError("core-mismatch", what=f"core {core} of {self.cores}")
        return self._cores[core]

    @property
    def location(self) -> Location:
        """Where what is built now comes from."""
        return self.declarations.guards.location

    @contextmanager
    def at(self, location: Location) -> Iterator[None]:
        """What is built inside, on any core, comes from a location, functions of `nki.language`
        included; None keeps the one that holds already. Branches on launch symbols inside become
        guards."""
        guards = self.declarations.guards
        before = guards.location
        if location is not None:
            guards.location = location
        context, decide = CURRENT.set(self), DECIDE.set(guards.decide)
        try:
            yield
        except NeuronError as error:
            if not error.notes:
                self.explain_shapes(error)
            error.location = error.location or locations.resolve(self.location)
            raise
        finally:
            CURRENT.reset(context)
            DECIDE.reset(decide)
            guards.location = before

    # Declarations

    def parameter(
        self,
        shape: Sequence[Any],
        dtype: Any,
        name: str,
        location: Location = None,
        *,
        within: NkiTensor | None = None,
        offset: Any = 0,
    ) -> NkiTensor:
        """The kernel's next parameter, in HBM: shared where there are several cores. It may lie
        `within` a tensor in HBM, from byte `offset` of that on: equal parameters of many layers in
        one tensor are what a loop over the layers can go through (`nki.ir.builder.repeat`). Raises
        wrong-memory for a tensor on chip, out-of-bounds for bytes that it does not have."""
        with self.at(location):
            sizes, dtype = sizes_of(shape), stored(normalise(dtype))
            around = None if within is None else within.storage
            tensor = self.declarations.parameter(sizes, dtype, name, self.location, around, offset)
            if around is not None:
                _check_inside(tensor, around)
            return strided(tensor, dtype, sizes, dense_strides(sizes))

    def tensor(
        self,
        shape: Sequence[Any],
        dtype: Any,
        memory: Memory = Memory.sbuf,
        name: str = "",
        *,
        address: tuple[int, int] | None = None,
        location: Location = None,
    ) -> NkiTensor:
        """A new tensor, as `nl.ndarray` makes it. In shared HBM it is one tensor for all cores."""
        with self.at(location):
            return allocate(self, shape, dtype, memory, name, address, self.location)

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
        place = self.location or location
        return super().allocate(shape, dtype, memory, name, address, place, data)

    def constant(self, array: Any, name: str = "", location: Location = None) -> NkiTensor:
        """A tensor in shared HBM that holds an array, as `nl.shared_constant` makes it."""
        with self.at(location):
            data, dtype = constant_data(array)
            memory = Memory.shared_hbm
            return self.allocate(data.shape, dtype, memory, name, None, self.location, data)

    def result(self, *tensors: NkiTensor, location: Location = None) -> None:
        """The kernel returns these, behind what it returns already. Raises output-not-hbm; and
        core-mismatch for a tensor of one of several cores."""
        with self.at(location):
            for tensor in map(result_of, tensors):
                if self.cores > 1 and tensor.buffer is Memory.private_hbm:
                    raise NeuronError(
                        "core-mismatch",
                        what=f"the kernel returns {tensor.name!r}, which core "
                        f"{tensor.storage.core} alone has",
                        hint="Make the result in shared HBM.",
                    )
                self.declarations.returned.append(tensor)

    def kernel(self) -> TracedKernel:
        """The kernel as it is built now, with exchanges of cores in the order of the calls
        (`nki.trace.exchanges` puts them into one that all cores have). Raises loop-break for a
        block that is open, and what a kernel raises whose function returned."""
        declarations = self.declarations
        for builder in self._cores:
            builder.finish()
        bodies: list[list[Node]] = [builder.nodes for builder in self._cores]
        check_edges(bodies)
        declarations.results = Results(returned(declarations.returned))
        return declarations.kernel(bodies)

    # Operations

    def emit(
        self,
        operation: type[Operation] | str,
        *,
        location: Location = None,
        name: str | None = None,
        **fields: Any,
    ) -> NkiInstruction:
        """One operation of the table, by row or name, as `nki.isa` has it: fields that are absent
        have defaults, operators are rows of `isa.alu`. `name` is its name in schedules."""
        with self.at(location):
            row = _row(operation)
            unknown = [field for field in fields if field not in row.fields]
            if unknown:
                raise _unknown("unknown-argument", f"{row.name} has no", unknown[0], row.fields)
            instruction: NkiInstruction = emit(self, row, fields, self.location, name)
            return instruction

    def record(
        self,
        row: type[Operation],
        values: tuple[Any, ...],
        location: Location,
        name: str | None = None,
    ) -> NkiInstruction:
        return super().record(row, values, self.location or location, name)

    @contextmanager
    def in_order(self) -> Iterator[None]:
        """Operations inside keep their order."""
        self.enter_no_reorder()
        try:
            yield
        finally:
            self.exit_no_reorder()

    # Registers

    def register(
        self, value: Any = None, name: str = "", location: Location = None
    ) -> VirtualRegister:
        """A new register that holds an integer, what another register holds, or the one element of
        a tensor; with None nothing yet."""
        with self.at(location):
            register = self.new_register(name, self.location)
            if isinstance(value, NkiTensor):
                emit(self, RegisterLoad, {"dst": register, "src": value}, self.location)
            elif value is not None:
                emit(self, RegisterMove, {"dst": register, "src": value}, self.location)
            return register

    # Loops and conditions

    @contextmanager
    def loop(
        self,
        lower: Any,
        upper: Any,
        step: int = 1,
        *,
        unroll: bool = False,
        location: Location = None,
    ) -> Iterator[Affine]:
        """A loop on the device over lower, lower + step, ... below upper, each an int, a form over
        launch symbols or a register; gives the variable as an index form.

        `unroll` lets the passes rotate the body's buffers. Raises value-not-allowed, also for a
        loop that has no iteration at any launch; loop-carried-state for a matmul whose flag is not
        the same in all iterations but the first.
        """
        with self.at(location):
            self.loops.refuse_order("a loop on the device", self.location)
            lower, upper = loop_bound(lower), loop_bound(upper)
            check_step(step)
            trips, first, last = counted(lower, upper, step)
            if trips is not None and prove(trips, "<=") is True:
                raise NeuronError(
                    "value-not-allowed",
                    what=f"a loop from {lower} below {upper}",
                    why="What a loop's body accesses is checked for its iterations.",
                    hint="Leave out a loop that has none.",
                )
            loop = self._open(self.location, trips)
            variable = self._variable(self.location, first, last)
            self._begin(loop, variable)
        yield affine(variable)
        with self.at(location):
            self.loops.expect(loop)
            self._append_loop(loop, lower, upper, step, unroll)

    def tiles(self, lower: Any, upper: Any, step: int, location: Location = None) -> Iterator[Any]:
        """The loop over a size of launch symbols that `nl.affine_range` makes: gives an index form
        for the general iteration, whose body is to be built. Where the number of iterations is
        rounded up, the position of the last partial one follows."""
        with self.at(location):
            check_step(step)
            iterations = self.symbolic_range(lower, upper, step, self.location)
        while True:
            with self.at(location):
                try:
                    position = next(iterations)
                except StopIteration:
                    return
            yield position

    @contextmanager
    def while_(self, register: VirtualRegister, location: Location = None) -> Iterator[None]:
        """Run the block as long as a register, which the block writes, is not 0."""
        with self.at(location):
            self.loops.refuse_order("a `while` on a register", self.location)
            loop = self._open(self.location, None, register)
            self._begin(loop, None)
        yield
        with self.at(location):
            self.loops.expect(loop)
            self._append_while(loop, self.location)

    @contextmanager
    def when(self, register: VirtualRegister, location: Location = None) -> Iterator[None]:
        """Run the block once if a register is not 0, else not at all."""
        with self.at(location):
            self.loops.refuse_order("a condition on the device", self.location)
            held = self.register(register, f"{register.name}_once")
            loop = self._open(self.location, None, held, repeats=False)
            self._begin(loop, None)
        yield
        with self.at(location):
            self.loops.expect(loop)
            emit(self, RegisterMove, {"dst": held, "src": 0}, self.location)
            body = self._leave(loop, None)
            self.nodes.append(While(held, body, loop.location))

    # Copies of what other kernels have

    def copied_tensor(self, tensor: Tensor, label: str) -> Tensor:
        """A tensor of this kernel, and where it is not shared of this core, like another one."""
        core = None if tensor.memory is Memory.shared_hbm else self.core
        kind = tensor.memory, tensor.dtype, tensor.shape, tensor.address
        return self._tensor(label, *kind, core, tensor.location, tensor.data)

    def part(self, like: Tensor, within: Tensor, offset: Any) -> Tensor:
        """A tensor of this kernel like another one: bytes of `within` from byte `offset` on, which
        loop variables may move."""
        core = None if within.memory is Memory.shared_hbm else self.core
        tensor = self._tensor(
            like.label, within.memory, like.dtype, like.shape, None, core, like.location
        )
        tensor.lie(within, offset)
        return tensor

    def copied_register(self, register: Register) -> Register:
        """A register of this core like another one."""
        return self._variable(register.location, register.lower, register.upper, register.name)

    # Accumulation groups

    def accumulate(self, dst: Any, accumulate: Any) -> Any:
        flag = super().accumulate(dst, accumulate)
        if self._blocks:
            matmul = Matmul(dst, accumulate, self.nodes, len(self.nodes))
            self._blocks[-1].events.append(matmul)
        return flag

    def overwritten(self, dst: Any) -> None:
        super().overwritten(dst)
        if self._blocks:
            self._blocks[-1].events.append(dst)

    def _begin_storage(self, view: NkiTensor, location: Location) -> None:
        super()._begin_storage(view, location)
        if self._blocks and view.storage.memory is Memory.psum:
            self._blocks[-1].events.append(view.storage)

    @property
    def depth(self) -> int:
        """How many loops and conditions are open."""
        return len(self._blocks)

    def _open(
        self,
        location: Location,
        trips: Any,
        register: Register | None = None,
        frame: Any = None,
        repeats: bool = True,
    ) -> RolledLoop:
        self._blocks.append(PsumBlock(trips, repeats))
        return super()._open(location, trips, register, frame, repeats)

    def _leave(self, loop: RolledLoop, start: Any) -> list[Node]:
        block = self._blocks.pop()
        block.variable, block.start = loop.bodies[0].variable, start
        block.close(self.accumulation)
        if self._blocks:
            self._blocks[-1].events.append(block)
        return super()._leave(loop, start)


def _row(operation: type[Operation] | str) -> type[Operation]:
    """A row of the operation table, by itself or its name."""
    if not isinstance(operation, str):
        return operation
    row = OPERATIONS.get(operation)
    if row is None:
        raise _unknown("value-not-allowed", "there is no operation", operation, OPERATIONS)
    return row


def _check_inside(tensor: Tensor, around: Tensor) -> None:
    """The bytes of a tensor are some of the one that it lies in."""
    if around.memory.on_chip:
        raise NeuronError(
            "wrong-memory",
            what=f"{tensor.name} lies within {around.name}, which is in {around.memory.value}",
            why="Parameters are in HBM.",
        )
    rest = bytes_of(around) - bytes_of(tensor) - tensor.offset
    if not (prove_nonnegative(tensor.offset) and prove_nonnegative(rest)):
        raise NeuronError(
            "out-of-bounds",
            what=f"{tensor.name} has {bytes_of(tensor)} bytes from byte {tensor.offset} of "
            f"{around.name} on, which has {bytes_of(around)}",
        )


def _unknown(code: str, what: str, name: str, names: Any) -> NeuronError:
    """The error of a name that is none of some."""
    return NeuronError(
        code,
        what=f"{what} {name!r}",
        why="Operations and their fields are those of the operation table.",
        hint=did_you_mean(name, names, quoted=True) or f"Names are {', '.join(names)}.",
    )
