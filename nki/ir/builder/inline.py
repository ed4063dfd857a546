"""Inlining: a finished kernel becomes a part of one that is being built.

A copy has tensors, registers and names of its own; its tensors are called `kernel/x`, so that an
overflow says whose they are. Parameters are bound to views: a distance in the parameter becomes one
index per dimension, and these a distance in the view (`nki.ir.builder.bindings`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from isa.enums import Memory
from isa.errors import NeuronError
from nki.ir.begins import begun_by
from nki.ir.builder.bindings import Binding
from nki.ir.builder.builder import Builder
from nki.ir.builder.declarations import symbols_in
from nki.ir.builder.loops import registers_written
from nki.ir.context import Location
from nki.ir.nodes import Access, Node, Op, Register, Tensor, TracedKernel
from nki.ir.rewrite import Cloner, Original, same_form
from nki.ir.views.layout import dense_strides
from nki.ir.views.tensor import NkiTensor, strided


def inline(
    kernel: TracedKernel,
    bindings: Mapping[str, NkiTensor],
    into: Builder,
    location: Location = None,
) -> list[NkiTensor]:
    """Put a kernel's operations where `into` builds; gives its results.

    `bindings` are views in HBM by the name of the parameter, and of those results that are not to
    be tensors of their own. What a copy has besides is its own: tensors, whose names begin with the
    kernel's, registers, names of instructions. Places are not copied. A kernel for several cores
    goes to all of them, one for a single core to that of `into`. Guards are joined.

    Raises missing-argument, unknown-argument, shape-mismatch, dtype-not-allowed, wrong-memory and
    view-not-allowed for bindings that do not fit; generation and core-mismatch; not-supported where
    operations keep their order.

    >>> import nki, nki.language as nl
    >>> @nki.jit
    ... def copied(a):
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.load(a))
    ...     return out
    >>> traced = copied.trace(nki.TensorSpec((4, 8), nl.float32), target="trn2")
    >>> b = Builder("trn2", name="twice")
    >>> x = b.parameter((4, 16), "float32", "x")
    >>> (once,) = inline(traced, {"a": x[:, 8:16]}, b)
    >>> (twice,) = inline(traced, {"a": once}, b)
    >>> b.result(twice)
    >>> [tensor.name for tensor in b.kernel().tensors]
    ['x', 'copied/out', 'copied/tensor', 'copied.1/out', 'copied.1/tensor']
    """
    with into.at(location):
        builders = builders_of(kernel, into)
        return inline_on(builders, kernel, [bindings] * len(builders))


def builders_of(kernel: TracedKernel, into: Builder) -> list[Builder]:
    """The builders that the bodies of a kernel go to. Raises what `inline` does for a kernel that
    does not fit `into`."""
    _check(kernel, into)
    whole = len(kernel.bodies) > 1
    return [into.on(core) for core in range(into.cores)] if whole else [into]


def inline_on(
    builders: Sequence[Builder], kernel: TracedKernel, bindings: Sequence[Mapping[str, NkiTensor]]
) -> list[NkiTensor]:
    """`inline` with bindings for the body of each core; the results are those of the first."""
    into = builders[0]
    bound = [_bound(kernel, own, builder) for own, builder in zip(bindings, builders)]
    owner = _owner(kernel, into)
    declarations = into.declarations
    declarations.symbols = symbols_in([declarations.symbols, kernel.symbols])
    for guard in kernel.guards:
        declarations.guards.add(guard)
    made = _shared(kernel, bound[0], _Names(into, owner))
    copies = [
        _Copy(_Names(builder, owner), body, own, made)
        for builder, body, own in zip(builders, kernel.bodies, bound)
    ]
    for builder, copy, body, own in zip(builders, copies, kernel.bodies, bound):
        builder.nodes += copy.nodes(Original(_without_bound(body, own)))
        builder.rolled |= kernel.has_loops
    return [
        bound[0][tensor].view if tensor in bound[0] else _whole(copies[0].tensors[tensor])
        for tensor in kernel.results
    ]


def _check(kernel: TracedKernel, into: Builder) -> None:
    if kernel.target != into.target.name:
        raise NeuronError(
            "generation",
            what=f"{kernel.name} is for {kernel.target}, and inlined into a kernel for "
            f"{into.target.name}",
            hint="Trace it for the same target.",
        )
    if len(kernel.bodies) not in (1, into.cores):
        raise NeuronError(
            "core-mismatch",
            what=f"{kernel.name} is for {len(kernel.bodies)} cores, and inlined into a kernel for "
            f"{into.cores}",
        )
    part = next((tensor for tensor in kernel.tensors if tensor.within is not None), None)
    if part is not None and part.within is not None:
        raise NeuronError(
            "not-supported",
            what=f"{kernel.name} is inlined, whose {part.name!r} lies within {part.within.name!r}",
            hint="Run nki.passes.place.roots on it first, which leaves whole tensors only.",
        )
    if into.loops.ordered:
        raise NeuronError(
            "not-supported",
            what=f"{kernel.name} is inlined where operations keep their order",
            why="A kernel has an order of its own.",
            hint="Inline it before or behind the block.",
        )


def _bound(
    kernel: TracedKernel, bindings: Mapping[str, NkiTensor], into: Builder
) -> dict[Tensor, Binding]:
    """What stands for the tensors of a kernel that are bound."""
    names = dict(zip(kernel.parameter_names, kernel.parameters))
    results = {tensor.name: tensor for tensor in kernel.results if tensor not in names.values()}
    for name in names:
        if name not in bindings:
            raise NeuronError(
                "missing-argument",
                what=f"{kernel.name} needs {name}",
                hint=f"Its parameters are {', '.join(names)}.",
            )
    known = results | names
    for name in bindings:
        if name not in known:
            raise NeuronError(
                "unknown-argument",
                what=f"{kernel.name} has no parameter or result {name!r}",
                hint=f"It has {', '.join(known) or 'none'}.",
            )
    return {
        known[name]: Binding(kernel.name, known[name], view, into.core)
        for name, view in bindings.items()
    }


def _owner(kernel: TracedKernel, into: Builder) -> str:
    """The name of this copy of a kernel: another one for each."""
    inlined = into.declarations.inlined
    copy = inlined.get(kernel.name, 0)
    inlined[kernel.name] = copy + 1
    return f"{kernel.name}.{copy}" if copy else kernel.name


def _shared(
    kernel: TracedKernel, bound: Mapping[Tensor, Binding], names: _Names
) -> dict[Tensor, Tensor]:
    """Copies of the tensors that no body begins."""
    return {
        tensor: names.tensor(tensor)
        for tensor in kernel.tensors
        if tensor not in bound and tensor.memory is Memory.shared_hbm
    }


def _without_bound(nodes: Iterable[Node], bound: Mapping[Tensor, Binding]) -> list[Node]:
    """A body's nodes without the beginnings of results that are somebody else's tensors."""
    return [node for node in nodes if begun_by(node) not in bound]


def _whole(tensor: Tensor) -> NkiTensor:
    return strided(tensor, tensor.dtype, tensor.shape, dense_strides(tensor.shape))


class _Names:
    """The tensors and registers of one copy of a kernel, as tensors and registers of a builder."""

    def __init__(self, builder: Builder, owner: str) -> None:
        self.builder = builder
        self.owner = owner

    def tensor(self, tensor: Tensor, suffix: str = "") -> Tensor:
        """A tensor of its own for one of the kernel's."""
        return self.builder.copied_tensor(tensor, f"{self.owner}/{tensor.label}{suffix}")

    def register(self, register: Register) -> Register:
        """A register of its own for one of the kernel's."""
        return self.builder.copied_register(register)


class _Copy(Cloner):
    """One core's copy of a kernel."""

    def __init__(
        self,
        names: _Names,
        body: list[Node],
        bound: Mapping[Tensor, Binding],
        made: Mapping[Tensor, Tensor],
    ) -> None:
        written = dict.fromkeys(registers_written(body))
        super().__init__(names, {r: same_form(names.register(r)) for r in written})
        self.owner = names.owner
        self.bound = bound
        self.tensors.update(made)

    def begins(self, tensor: Tensor) -> bool:
        return tensor not in self.bound and tensor not in self.tensors

    def name(self, op: Op) -> str | None:
        return f"{self.owner}/{op.name}" if op.name else op.name

    def access(self, access: Access) -> Access:
        binding = self.bound.get(access.storage)
        if binding is None or id(access) in self.accesses:
            return super().access(access)
        # Registers of the kernel first: the view may have registers of the caller.
        copy = self.accesses[id(access)] = binding.access(super().access(access))
        return copy
