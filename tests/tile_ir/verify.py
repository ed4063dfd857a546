"""The invariants of tile IR, which tests check before and after every pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from isa.affine import Affine, Polynomial, Predicate, prove_nonnegative, symbols_of
from isa.affine.polynomial import exact_quotient
from isa.alu import AluOperator, ScalarEngineFunction
from isa.dtypes import DTYPES
from isa.enums import Engine, Memory
from isa.errors import NeuronError
from isa.fields import ENUM_KINDS, Attribute, Kind, Operand
from isa.operations.control import StorageBegin
from isa.spec import OPERATIONS
from isa.target import TARGETS
from nki.ir import locations
from nki.ir.nodes import Access, Loop, Node, Op, Register, Tensor, TracedKernel, While, bytes_of
from nki.ir.text.printer import access_text
from nki.ir.views.pattern import ends
from nki.passes.place.roots import is_negative

ROLES = ("input", "output", "inout", "local", "constant")


def verify(kernel: TracedKernel) -> None:
    """Check what every pass may rely on; raises NeuronError("ir-invalid") at the first breach.

    - tensors have distinct numbers, known dtypes and roles; on chip their shapes are integers;
    - parameters and results are tensors of the kernel, in HBM;
    - a tensor within another has its memory and core, lies inside it where that can be decided, and
      begins at a multiple of its element size; parameters and results do so at places that no
      register decides, and parameters share no bytes;
    - the values of an operation align with its row's fields and have their kinds; operands are in
      memories and dtypes that the row allows; `accumulate` is resolved;
    - accesses stay inside their tensor where that can be decided, and keep dimension 0 on the
      partitions on chip;
    - an on-chip tensor begins before it is used, and is used in the block where it begins; a core
      uses only its own tensors and shared ones;
    - registers are written before they are read; loop variables are used inside their loop and
      written nowhere; the body of a `while` writes its register;
    - `after` edges name operations further up.
    """
    _Verifier(kernel).kernel()


class _Verifier:
    def __init__(self, source: TracedKernel) -> None:
        self.source = source
        self.known = set(source.tensors)
        self.declared: set[Tensor] = set()
        self.core = 0
        self.begun: set[Tensor] = set()
        self.written: set[Register] = set()
        self.variables: set[Register] = set()
        self.numbers: dict[int, Register] = {}
        self.seen: set[Op] = set()
        self.engines: tuple[Engine, ...] = ()
        self.location: Any = None
        self.node = ""

    def fail(self, what: str) -> NoReturn:
        where = f"{self.node}: " if self.node else ""
        raise NeuronError(
            "ir-invalid",
            f"kernel {self.source.name}: {where}{what}",
            location=locations.resolve(self.location),
        )

    def need(self, condition: Any, what: str) -> None:
        if not condition:
            self.fail(what)

    # Declarations --------------------------------------------------------------------------

    def kernel(self) -> None:
        source = self.source
        self.need(source.target in TARGETS, f"unknown target {source.target!r}")
        self.need(source.bodies, "no core has a body")
        numbers: dict[int, Tensor] = {}
        for tensor in source.tensors:
            other = numbers.setdefault(tensor.number, tensor)
            self.need(other is tensor, f"{tensor!r} and {other!r} are both %t{tensor.number}")
            self.tensor(tensor)
            self.declared.add(tensor)
        self.need(
            len(source.parameters) == len(source.parameter_names),
            f"{len(source.parameters)} parameters, {len(source.parameter_names)} names",
        )
        for tensor in source.parameters:
            self.need(tensor in self.known, f"parameter {tensor!r} is not among the tensors")
            self.need(tensor.role in ("input", "inout"), f"{tensor!r} is {tensor.role}, not input")
        for tensor in source.results:
            self.need(tensor in self.known, f"result {tensor!r} is not among the tensors")
            self.need(not tensor.memory.on_chip, f"result {tensor!r} is not in HBM")
        self.places_of_parameters()
        initial = {tensor for tensor in source.tensors if not tensor.memory.on_chip}
        for core, body in enumerate(source.bodies):
            self.core = core
            self.begun = set(initial)
            self.written, self.variables, self.numbers = set(), set(), {}
            self.seen = set()
            self.block(body)

    def tensor(self, tensor: Tensor) -> None:
        self.location = tensor.location
        self.node = f"tensor %t{tensor.number} {tensor.name!r}"
        self.need(tensor.dtype in DTYPES, f"unknown dtype {tensor.dtype!r}")
        self.need(tensor.role in ROLES, f"unknown role {tensor.role!r}")
        self.need(tensor.shape, "no dimensions")
        cores = len(self.source.bodies)
        self.need(tensor.core is None or 0 <= tensor.core < cores, f"core {tensor.core}")
        if tensor.memory.on_chip:
            self.need(tensor.core is not None, "an on-chip tensor belongs to no core")
            self.need(all(type(n) is int for n in tensor.shape), f"shape {list(tensor.shape)}")
            most = int(TARGETS[self.source.target].partitions.value)
            self.need(tensor.shape[0] <= most, f"{tensor.shape[0]} partitions of {most}")
            self.need(tensor.role == "local", f"role {tensor.role} on chip")
        else:
            self.need(tensor.address is None, "an address in HBM")
            if tensor.memory is Memory.shared_hbm:
                self.need(tensor.core is None, "shared HBM that belongs to one core")
        for count in tensor.shape:
            self.need(type(count) is int or isinstance(count, Polynomial), f"dimension {count!r}")
            self.need(prove_nonnegative(count) is not False, f"dimension {count}")
        self.need((tensor.role == "constant") == (tensor.data is not None), "constants have data")
        if tensor.data is not None:
            self.need(tensor.data.shape == tensor.shape, f"data of shape {tensor.data.shape}")
            self.need(
                tensor.data.dtype == DTYPES[tensor.dtype].numpy, f"data of {tensor.data.dtype}"
            )
        if tensor.within is not None:
            self.within(tensor, tensor.within)
        self.location, self.node = None, ""

    def within(self, tensor: Tensor, outer: Tensor) -> None:
        """A tensor within another one, which comes before it so that there are no cycles."""
        self.need(not tensor.memory.on_chip, "within another tensor on chip")
        self.need(tensor.data is None, "a constant within another tensor")
        self.need(outer in self.known and outer.divided, f"within {outer!r}, which is not known")
        self.need(outer in self.declared, f"within {outer!r}, which comes behind it")
        self.need(
            outer.memory is tensor.memory and outer.core == tensor.core,
            f"within {outer!r}, in memory of another kind or core",
        )
        offset, size = tensor.offset, DTYPES[tensor.dtype].size
        self.need(_is_form(offset), f"at {offset!r}")
        if not isinstance(offset, Affine):
            self.symbols(offset)
        self.need(_divides(size, offset), f"at byte {offset} of {outer!r}: no multiple of {size}")
        self.inside(offset, bytes_of(outer) - bytes_of(tensor) - offset, f"at byte {offset}", outer)

    def places_of_parameters(self) -> None:
        """Parameters and results lie at places that are known when the program starts."""
        source = self.source
        for tensor in (*source.parameters, *source.results):
            fixed = not isinstance(tensor.in_root()[1], Affine)
            self.need(fixed, f"{tensor!r}: registers decide where it lies")
        for index, tensor in enumerate(source.parameters):
            root, first = tensor.in_root()
            for other in source.parameters[:index]:
                its_root, its_first = other.in_root()
                apart = (
                    its_root is not root
                    or prove_nonnegative(first - its_first - bytes_of(other))
                    or prove_nonnegative(its_first - first - bytes_of(tensor))
                )
                self.need(apart or other is tensor, f"{tensor!r} and {other!r} share bytes")

    # Nodes ---------------------------------------------------------------------------------

    def block(self, nodes: list[Node]) -> None:
        begun = set(self.begun)
        for node in nodes:
            self.location = node.location
            if isinstance(node, Op):
                self.op(node)
            elif isinstance(node, Loop):
                self.loop(node)
            else:
                self.loop_while(node)
        self.begun = begun

    def loop(self, loop: Loop) -> None:
        self.node = f"loop %r{loop.variable.number}"
        self.need(type(loop.step) is int and loop.step > 0, f"step {loop.step!r}")
        for bound in (loop.lower, loop.upper):
            self.value(bound)
        self.need(loop.variable not in self.variables, "the variable has a loop already")
        self.need(loop.variable not in self.written, "the variable is written as a register")
        self.same_number(loop.variable)
        self.variables.add(loop.variable)
        self.block(loop.body)
        self.variables.remove(loop.variable)

    def loop_while(self, loop: While) -> None:
        self.node = f"while %r{loop.register.number}"
        self.read(loop.register)
        self.need(
            any(loop.register in _written(node) for node in loop.body),
            "the body never writes the register",
        )
        self.block(loop.body)

    def op(self, op: Op) -> None:
        row = op.row
        self.node = row.name
        self.need(OPERATIONS.get(row.name) is row, f"{row!r} is not a row of the table")
        self.need(
            len(op.values) == len(row.field_names),
            f"{len(op.values)} values for {len(row.field_names)} fields",
        )
        for other in op.after:
            self.need(other in self.seen, f"comes after {other.row.name}, which is not above it")
        self.seen.add(op)
        self.engines = row.engines
        begins = row is StorageBegin
        if begins:
            access = op.values[0]
            self.need(isinstance(access, Access), "needs a view")
            self.begun.add(access.storage)
        for (name, field), value in zip(row.fields.items(), op.values):
            self.node = f"{row.name} {name}"
            if isinstance(field, Operand):
                self.operand(field, value)
            else:
                self.attribute(field, value)
        for index, name, field in row.attributes:
            if field.kind is Kind.register:
                register = op.values[index]
                self.node = f"{row.name} {name}"
                self.need(register not in self.variables, f"writes the loop variable {register!r}")
                self.same_number(register)
                self.written.add(register)

    # Values --------------------------------------------------------------------------------

    def operand(self, field: Operand, value: Any) -> None:
        if value is None:
            self.need(field.optional, "is missing")
        elif isinstance(value, Access):
            memory = value.storage.memory
            self.need(memory in field.memories, f"{memory.value} is not allowed: {value.storage!r}")
            self.need(
                field.dtypes is None or value.dtype in field.dtypes,
                f"dtype {value.dtype} is not allowed",
            )
            self.need(
                value.vector_offset is None
                or (field.columns if memory.on_chip else field.vector_offset),
                "indices are not allowed",
            )
            self.access(value)
        else:
            self.need(field.immediate, f"{value!r} is not a view")
            self.need(_is_number(value), f"{value!r} is not a number")

    def attribute(self, field: Attribute, value: Any) -> None:
        if value is None:
            allowed = field.optional and field.kind is not Kind.accumulate
            self.need(allowed, "is not resolved" if field.optional else "is missing")
            return
        self.need(_KINDS[field.kind](value), f"{value!r} is no {field.kind.value}")
        if field.choices is not None:
            # A resolved engine may be one that the author cannot ask for.
            allowed = value in field.choices or value in self.engines
            self.need(allowed, f"{value} is not one of the choices")
        if isinstance(value, Predicate):
            self.value(value.form)
        elif field.kind is not Kind.register:
            self.value(value)

    def value(self, value: Any) -> None:
        """A form or register that is read here."""
        if isinstance(value, Register):
            self.read(value)
        elif isinstance(value, Affine):
            for register, _ in value.terms:
                self.read(register)
            self.symbols(value)
        elif isinstance(value, Polynomial):
            self.symbols(value)

    def symbols(self, value: Any) -> None:
        declared = set(self.source.symbols)
        for symbol in symbols_of(value):
            self.need(symbol in declared, f"symbol {symbol.name} is not declared")

    def read(self, register: Register) -> None:
        self.need(
            register in self.written or register in self.variables,
            f"{register!r} {register.name} is read before it is written",
        )
        self.same_number(register)

    def same_number(self, register: Register) -> None:
        other = self.numbers.setdefault(register.number, register)
        self.need(other is register, f"two registers are %r{register.number}")

    def access(self, access: Access) -> None:
        storage = access.storage
        text = access_text(access)
        self.need(storage in self.known, f"{text}: {storage!r} is not among the tensors")
        self.need(storage.core in (None, self.core), f"{text}: belongs to core {storage.core}")
        self.need(storage in self.begun, f"{text}: {storage!r} is used where it has not begun")
        self.need(access.dtype in DTYPES, f"{text}: unknown dtype {access.dtype!r}")
        self.need(access.shape, f"{text}: no dimensions")
        self.need(
            len(access.shape) == len(access.strides),
            f"{text}: {len(access.shape)} dimensions, {len(access.strides)} strides",
        )
        for form in (*access.shape, *access.strides):
            self.need(type(form) is int or isinstance(form, Polynomial), f"{text}: {form!r}")
            self.symbols(form)
        self.value(access.offset)
        shape, strides = list(access.shape), list(access.strides)
        if access.vector_offset is not None:
            index = access.vector_offset
            self.need(index.storage.memory is Memory.sbuf, f"{text}: row indices outside SBUF")
            self.need(index.vector_offset is None, f"{text}: row indices of row indices")
            self.access(index)
            picked = 1 if storage.memory.on_chip else 0
            self.need(picked < len(shape), f"{text}: nothing that indices pick")
            shape[picked], strides[picked] = access.vector_bound, access.vector_stride
        if any(type(count) is int and count <= 0 for count in shape):
            self.need(min(c for c in shape if type(c) is int) == 0, f"{text}: negative count")
            return
        if storage.memory.on_chip:
            self.on_chip(access, text, shape, strides)
        else:
            size = DTYPES[access.dtype].size
            outer = None
            if storage.within is not None:
                outer, first = storage, storage.in_root()[1]
                self.value(first)
                self.need(_divides(size, first), f"{text}: {access.dtype} at byte {first}")
            low, high = (access.offset + end for end in ends(shape, strides))
            self.inside(low * size, bytes_of(storage) - (high + 1) * size, text, outer)

    def on_chip(self, access: Access, text: str, shape: list[Any], strides: list[Any]) -> None:
        storage = access.storage
        size = DTYPES[access.dtype].size
        pitch_bytes = storage.row_bytes
        self.need(pitch_bytes % size == 0, f"{text}: {pitch_bytes} bytes a partition")
        pitch = pitch_bytes // size
        if type(shape[0]) is not int or shape[0] > 1:
            self.need(
                type(strides[0]) is int and strides[0] == pitch,
                f"{text}: dimension 0 steps by {strides[0]}, a partition has {pitch} elements",
            )
        if type(access.offset) is int:
            partition, column = divmod(access.offset, pitch)
            partitions = storage.shape[0] - partition - shape[0]
            low, high = (column + end for end in ends(shape[1:], strides[1:]))
            self.inside(partition, partitions, text)
            self.inside(low, pitch - 1 - high, text)
        else:
            low, high = (access.offset + end for end in ends(shape, strides))
            self.inside(low, storage.shape[0] * pitch - 1 - high, text)

    def inside(self, before: Any, behind: Any, text: str, outer: Tensor | None = None) -> None:
        """Both distances must not be negative. Only what can be decided is refused: guards and
        run-time checks answer for the rest."""
        of = "" if outer is None else f" of {outer!r}"
        for distance in (before, behind):
            self.need(not is_negative(distance), f"{text}: is out of bounds{of}")


def _divides(size: int, form: Any) -> bool:
    parts = [form]
    if isinstance(form, Affine):
        parts = [form.constant, *(coefficient for _, coefficient in form.terms)]
    return all(exact_quotient(part, size) is not None for part in parts)


def _written(node: Node) -> set[Register]:
    if isinstance(node, Op):
        return {node.values[i] for i in node.row.register_writes}
    return set().union(*map(_written, node.body)) if node.body else set()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (hasattr(value, "item") and not value.shape)


def _is_form(value: Any) -> bool:
    return type(value) is int or isinstance(value, (Polynomial, Affine))


def _are_integers(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(_is_form, value))


def _enum_check(kind: Kind) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, ENUM_KINDS[kind])


_KINDS: dict[Kind, Callable[[Any], bool]] = {
    Kind.flag: lambda value: isinstance(value, bool),
    Kind.integer: _is_form,
    Kind.float32: _is_number,
    Kind.alu: lambda value: isinstance(value, AluOperator),
    Kind.activation: lambda value: isinstance(value, ScalarEngineFunction),
    Kind.pattern: lambda value: (
        isinstance(value, tuple) and all(_are_integers(pair) and len(pair) == 2 for pair in value)
    ),
    Kind.integers: _are_integers,
    Kind.numbers: lambda value: isinstance(value, tuple) and all(map(_is_number, value)),
    Kind.register: lambda value: isinstance(value, Register),
    Kind.value: lambda value: _is_form(value) or isinstance(value, Register),
    Kind.target: lambda value: type(value) is int,
    Kind.accumulate: lambda value: isinstance(value, (bool, Predicate)),
    Kind.number: _is_number,
    Kind.priority: lambda value: type(value) is int,
    **{kind: _enum_check(kind) for kind in ENUM_KINDS},
}
