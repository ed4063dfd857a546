"""Copying IR with substitutions: what loop peeling, buffer rotation and inlining are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from isa.affine import Affine, Predicate, substitute
from isa.alu import AluOperator, ScalarEngineFunction
from isa.enums import Memory
from isa.fields import ENUM_KINDS
from nki.ir.begins import begun, begun_by
from nki.ir.nodes import (
    Access,
    LimitedAccess,
    Loop,
    Node,
    Op,
    Register,
    Tensor,
    TracedKernel,
    While,
    walk,
)


class CopyMaker(Protocol):
    """Who makes the tensors and registers of copies."""

    def tensor(self, tensor: Tensor, suffix: str) -> Tensor:
        """Another tensor like one, whose name ends in `suffix`."""

    def register(self, register: Register) -> Register:
        """Another register like one."""


PLAIN = frozenset(
    {type(None), bool, int, float, str, ScalarEngineFunction, AluOperator, *ENUM_KINDS.values()}
)
"""Types of values that copies have like their originals; so are those that copies know nothing of,
which takes longer to find."""


class Original:
    """Nodes of which copies are made, and what is the same for all of them. `begun` are the tensors
    that begin anywhere inside. `changing` has by operation the fields that a copy may have other
    values of. `followed` are the operations that others name as coming first. `forms` are the
    values that are no views, and the registers that loops are bounded by. It `is_flat` without
    loops."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = list(nodes)
        self.begun: list[Tensor] = []
        self.changing: dict[Op, list[int]] = {}
        self.followed: set[Op] = set()
        self.forms: list[Any] = []
        for node in walk(self.nodes):
            if isinstance(node, Loop):
                self.forms += (*form_registers(node.lower), *form_registers(node.upper))
            elif isinstance(node, While):
                self.forms.append(node.register)
            else:
                self._enter(node)
        self.is_flat = len(self.changing) == len(self.nodes)

    def _enter(self, node: Op) -> None:
        values = node.values
        if (tensor := begun_by(node)) is not None:
            self.begun.append(tensor)
        changing = [at for at, kind in enumerate(map(type, values)) if kind not in PLAIN]
        self.changing[node] = changing
        self.forms += [values[at] for at in changing if not isinstance(values[at], Access)]
        if node.after:
            self.followed.update(node.after)


class Cloner:
    """Copies nodes with fresh tensors for those begun inside, and registers substituted.

    `values` maps registers to index forms; a register that a body writes is mapped to the form of
    another one alone, or stays what it is. `predicate` decides what becomes of an `accumulate`
    predicate.
    """

    def __init__(
        self,
        numbering: CopyMaker,
        values: dict[Register, Any],
        predicate: Callable[[Predicate], Any] = lambda predicate: predicate,
        suffix: str = "",
    ) -> None:
        self.numbering = numbering
        self.values = dict(values)
        self.numbers = {register.number: value for register, value in values.items()}
        self.predicate = predicate
        self.suffix = suffix
        self.tensors: dict[Tensor, Tensor] = {}
        self.accesses: dict[int, Access] = {}
        self.ops: dict[Op, Op] = {}

    def nodes(self, original: Original) -> list[Node]:
        """Copies of the nodes, in order. Tensors begun anywhere inside are fresh."""
        self.original = original
        for tensor in original.begun:
            if self.begins(tensor):
                self.tensors[tensor] = self.numbering.tensor(tensor, self.suffix)
        return [self._node(node) for node in original.nodes]

    def begins(self, tensor: Tensor) -> bool:
        """Whether a tensor that begins inside is fresh in the copy."""
        return tensor.role == "local" and not tensor.divided

    def name(self, op: Op) -> str | None:
        """What the copy of an operation is called."""
        return op.name

    def _node(self, node: Node) -> Node:
        if isinstance(node, Op):
            values = list(node.values)
            for at in self.original.changing[node]:
                known = self.accesses.get(id(values[at]))
                values[at] = self._value(values[at]) if known is None else known
            after = node.after and tuple(self.ops.get(op, op) for op in node.after)
            copy = Op(node.row, tuple(values), node.location, self.name(node), after)
            if node in self.original.followed:
                self.ops[node] = copy
            return copy
        if isinstance(node, While):
            return While(self._register(node.register), self._body(node.body), node.location)
        variable = self.numbering.register(node.variable)
        lower, upper = self._value(node.lower), self._value(node.upper)
        form = same_form(variable)
        self.values[node.variable] = form
        self.numbers[node.variable.number] = form
        body = self._body(node.body)
        bounds = lower, upper, node.step
        return Loop(variable, *bounds, body, node.unroll, node.location, node.copies)

    def _body(self, nodes: list[Node]) -> list[Node]:
        return [self._node(node) for node in nodes]

    def _register(self, register: Register) -> Register:
        value = self.values.get(register)
        if isinstance(value, Affine) and len(value.terms) == 1 and value.terms[0][1] == 1:
            return value.terms[0][0]
        return value if isinstance(value, Register) else register

    def _value(self, value: Any) -> Any:
        if isinstance(value, Access):
            return self.access(value)
        if isinstance(value, Affine):
            return substitute(value, self.numbers)
        if isinstance(value, Register):
            return self._register(value)
        if isinstance(value, Predicate):
            verdict = self.predicate(value)
            if isinstance(verdict, Predicate):
                return Predicate(substitute(verdict.form, self.numbers), verdict.op)
            return verdict
        return value

    def access(self, access: Access) -> Access:
        """The view on the copied tensor, with its offset substituted; shared where unchanged."""
        copy = self.accesses.get(id(access))
        if copy is not None:
            return copy
        storage = self.tensors.get(access.storage, access.storage)
        vector = None if access.vector_offset is None else self.access(access.vector_offset)
        offset = access.offset
        if type(offset) is not int:
            offset = substitute(offset, self.numbers)
        if storage is access.storage and vector is access.vector_offset and offset is access.offset:
            copy = access
        else:
            copy = Access(
                storage,
                access.dtype,
                access.shape,
                access.strides,
                offset,
                vector,
                access.vector_stride,
                access.vector_bound,
            )
            if access.limits is not None:
                first, last = (substitute(form, self.numbers) for form in access.limits)
                copy = LimitedAccess(copy, (first, last))
        self.accesses[id(access)] = copy
        return copy


def same_form(register: Register) -> Affine:
    """What a register holds, as an index form."""
    return Affine(0, ((register, 1),))


Replace = Callable[[Loop, list[Node], "Numbering"], list[Node] | None]
"""What becomes of a loop, given its body as rewritten so far; None: it stays."""


_Around = TypeVar("_Around", bound=Loop | While)


def with_body(node: _Around, body: list[Node], copies: int = 1) -> _Around:
    """The same loop around other nodes, which are `copies` of some."""
    copy: Any
    if isinstance(node, Loop):
        range_of = node.variable, node.lower, node.upper, node.step
        copy = Loop(*range_of, body, node.unroll, node.location, copies)
    else:
        copy = While(node.register, body, node.location)
    return copy


def replace_loops(kernel: TracedKernel, replace: Replace) -> TracedKernel:
    """The kernel with loops replaced, inner ones first; itself where all stay."""
    if not kernel.has_loops:
        return kernel
    numbering = Numbering(kernel.tensors, kernel.bodies)
    bodies = [_replace_in(body, replace, numbering) for body in kernel.bodies]
    if all(new is old for new, old in zip(bodies, kernel.bodies)):
        return kernel
    return kernel.with_bodies(bodies, numbering.begun(bodies))


def _replace_in(nodes: list[Node], replace: Replace, numbering: Numbering) -> list[Node]:
    result: list[Node] = []
    changed = False
    for node in nodes:
        if isinstance(node, Op):
            result.append(node)
            continue
        body = _replace_in(node.body, replace, numbering)
        replaced = None if isinstance(node, While) else replace(node, body, numbering)
        if replaced is None and body is node.body:
            result.append(node)
            continue
        changed = True
        if replaced is not None:
            result += replaced
        else:
            result.append(with_body(node, body))
    return result if changed else nodes


class Numbering:
    """Fresh tensor and register numbers for one kernel; collects the tensors it makes."""

    def __init__(self, tensors: list[Tensor], bodies: list[list[Node]]) -> None:
        self.tensors = list(tensors)
        self._tensor = max((t.number for t in tensors), default=-1) + 1
        self._bodies = bodies
        self._register = -1

    def for_trials(self) -> Numbering:
        """One that goes on from here, for copies that are thrown away."""
        numbering = Numbering([], [])
        numbering._tensor, numbering._register = self._tensor, self._next_register()
        return numbering

    def tensor(self, tensor: Tensor, suffix: str, memory: Memory | None = None) -> Tensor:
        """Another tensor like one, in the same memory unless `memory` is given."""
        copy = Tensor(
            self._tensor,
            tensor.name + suffix,
            memory or tensor.memory,
            tensor.dtype,
            tensor.shape,
            tensor.role,
            None if memory else tensor.address,
            tensor.core,
            tensor.location,
            tensor.data,
        )
        self._tensor += 1
        self.tensors.append(copy)
        return copy

    def begun(self, bodies: list[list[Node]]) -> list[Tensor]:
        """The tensors without those of a core that no body begins any more. What others lie in
        may stand without a beginning: their own ones say when its bytes are used."""
        own = {tensor for body in bodies for tensor in begun(walk(body))}
        return [
            tensor
            for tensor in self.tensors
            if tensor.role != "local" or tensor.core is None or tensor.divided or tensor in own
        ]

    def register(self, register: Register | None = None, name: str = "") -> Register:
        number = self._next_register()
        self._register += 1
        if register is None:
            return Register(number, name)
        return Register(number, register.name, register.location, register.lower, register.upper)

    def _next_register(self) -> int:
        if self._register < 0:
            used = (r.number for body in self._bodies for r in registers(body))
            self._register = 1 + max(used, default=-1)
        return self._register


def registers(nodes: list[Node]) -> Iterable[Register]:
    """Every register that a body mentions, with repetitions."""
    for node in walk(nodes):
        if isinstance(node, Loop):
            yield node.variable
            for bound in (node.lower, node.upper):
                yield from form_registers(bound)
        elif isinstance(node, While):
            yield node.register
        else:
            for value in node.values:
                kind = value.__class__
                if kind is Access and type(value.offset) is int and value.vector_offset is None:
                    continue  # most are so
                if kind not in PLAIN:
                    yield from form_registers(value)


def form_registers(value: Any) -> tuple[Register, ...]:
    """The registers of one field value: a register, an index form, or an access."""
    if value is None or type(value) is int:
        return ()
    if isinstance(value, Access):
        if type(value.offset) is int and value.vector_offset is None:
            return ()
        vector = () if value.vector_offset is None else form_registers(value.vector_offset)
        return (*form_registers(value.offset), *vector)
    if isinstance(value, Register):
        return (value,)
    if isinstance(value, Affine):
        return tuple(register for register, _ in value.terms)
    return ()
