"""Operands of 16 bits instead of 32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from isa.enums import Engine, Memory
from isa.fields import Kind
from isa.rules import check_call
from isa.target import TARGETS, Target
from nki.advice.changed import Changed, Line, at_line
from nki.ir.nodes import Access, Node, Op, Tensor, TracedKernel, operations
from nki.ir.replace import Renamed, seen_through
from nki.ir.rewrite import Numbering
from nki.transformations.rewrites import transfer, with_ops

WIDE, NARROW = "float32", "bfloat16"

PRODUCTS, TRANSFERS = 0.5, 0.25
"""What of the gain counts, as results lose bits: of products, which fp32 makes take four passes,
and of anything else, which moves half of the bytes."""


def half_operands(kernel: TracedKernel, line: Line) -> Iterator[Changed]:
    """The tensors in SBUF that a line computes on, and those in HBM that they are copied from or
    to, in bfloat16.

    Before:

        left = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=lhsT[here, :])
        nisa.nc_matmul(dst=sums, stationary=left, moving=right)

    After: `left`, `right`, `lhsT` and `rhs` are bfloat16, `sums` in PSUM is not. Columns, as of
    factors of rows, stay where an operation wants them in fp32.
    """
    everything = _chosen(kernel, line)
    columns = {tensor for tensor in everything if tensor.pitch == 1}
    for left_out in (set(), columns) if columns else (set(),):
        chosen = {tensor: None for tensor in everything if tensor not in left_out}
        found = _narrow(kernel, chosen)
        if found is None:
            continue
        changed, of = found
        names = ", ".join(dict.fromkeys(t.label for t in chosen))
        multiplied = any(Engine.tensor in op.row.engines for op in at_line(kernel, line))
        weight = PRODUCTS if multiplied else TRANSFERS
        text = f"make {names} {NARROW}{_given(kernel, chosen)}{_converted(kernel, line)}"
        yield Changed("32-bit operands", text, changed, False, weight, of)
        return


def _narrow(
    kernel: TracedKernel, chosen: dict[Tensor, None]
) -> tuple[TracedKernel, frozenset[Op]] | None:
    """The kernel with these tensors in 16 bits, and the operations that use them; None where the
    rules forbid it."""
    if not chosen or any(t.data is not None or t.within or t.divided for t in chosen):
        return None
    if not chosen.keys().isdisjoint(_seen_otherwise(kernel)):
        return None
    numbering = Numbering(kernel.tensors, kernel.bodies)
    tensors = {tensor: _narrowed(numbering, tensor) for tensor in chosen}
    renamed = Renamed(tensors, _narrow_view)
    bodies = [renamed.nodes(body) for body in kernel.bodies]
    touched = [(o, n) for o, n in zip(_all(kernel.bodies), _all(bodies)) if n is not o]
    replaced: dict[Op, Op] = {}
    for _, new in touched:
        legal = _legal(new, TARGETS[kernel.target])
        if legal is None:
            return None
        if legal is not new:
            replaced[new] = legal
    changed = replace(
        kernel,
        parameters=[tensors.get(t, t) for t in kernel.parameters],
        results=[tensors.get(t, t) for t in kernel.results],
        bodies=bodies,
        tensors=[tensors.get(t, t) for t in kernel.tensors],
    )
    changed = with_ops(changed, replaced) if replaced else changed
    return changed, frozenset(old for old, _ in touched)


def _chosen(kernel: TracedKernel, line: Line) -> dict[Tensor, None]:
    """The tensors of 32 bits at a line, and those that transfers tie to them."""
    found: dict[Tensor, None] = {}
    for op in at_line(kernel, line):
        for value in op.values:
            if isinstance(value, Access) and value.storage.memory is Memory.sbuf:
                found[value.storage] = None
    copies = [t for op in _all(kernel.bodies) if (t := transfer(op, kernel)) is not None]
    grown = True
    while grown:
        grown = False
        for _, dst, src in copies:
            if (dst.storage in found) != (src.storage in found):
                found |= {dst.storage: None, src.storage: None}
                grown = True
    return {tensor: None for tensor in found if tensor.dtype == WIDE}


def _legal(op: Op, target: Target) -> Op | None:
    """The operation, by whichever engine has time where its own may not do it any more: only some
    start transfers that convert. None where the rules forbid it."""
    if check_call(op.row, op.values, target) is None:
        return op
    for index, _, attribute in op.row.attributes:
        if attribute.kind is Kind.engine:
            values = (*op.values[:index], Engine.unknown, *op.values[index + 1 :])
            if check_call(op.row, values, target) is None:
                return op.with_values(values)
    return None


def _given(kernel: TracedKernel, chosen: dict[Tensor, None]) -> str:
    """What a change asks of the kernel's caller."""
    given = [n for n, t in zip(kernel.parameter_names, kernel.parameters) if t in chosen]
    return f" (the caller passes {', '.join(given)} like that)" if given else ""


def _converted(kernel: TracedKernel, line: Line) -> str:
    """Whether a transfer of the line converts, which it no longer does."""
    transfers = [transfer(op, kernel) for op in at_line(kernel, line)]
    for found in transfers:
        if found is not None and {found.dst.dtype, found.src.dtype} == {WIDE, NARROW}:
            rate = TARGETS[kernel.target].dma_compute_fraction.value
            return f"; the transfer converts now, at {rate:.0%} of the rate"
    return ""


def _seen_otherwise(kernel: TracedKernel) -> set[Tensor]:
    """The tensors of which some view has the bits in another data type."""
    return {
        value.storage
        for op in _all(kernel.bodies)
        for value in op.values
        if isinstance(value, Access) and value.dtype != value.storage.dtype
    }


def _narrowed(numbering: Numbering, tensor: Tensor) -> Tensor:
    number = numbering.tensor(tensor, "").number
    return replace(tensor, number=number, dtype=NARROW)


def _narrow_view(access: Access, tensor: Tensor) -> Access:
    view = seen_through(access, tensor, access.offset)
    view.dtype = NARROW
    return view


def _all(bodies: list[list[Node]]) -> Iterator[Op]:
    for body in bodies:
        yield from operations(body)
