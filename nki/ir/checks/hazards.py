"""Hazards inside one instruction, and in what matrix multiplications leave in PSUM: what runs here,
and no document says what a device does with it.

Operands of one instruction are read while its result is written. So a result that meets its source
in another layout may be read too late. So may elements that are all written to one place. Sums in
PSUM are started by a matmul that overwrites, and added to by others (SDK nki.isa.nc_matmul,
"Accumulation mode"): a sum that is read between, one that is lost unread, and one of which a part
goes on are mostly slips of a loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from isa.affine import Predicate
from isa.enums import Memory
from isa.fields import Kind
from isa.operations.control import StorageBegin
from isa.spec import Operation
from nki.ir.checks.own_source import View, meets_elsewhere, overlap, view_of
from nki.ir.nodes import Access, Loop, Node, Op, Register, Tensor, While

if TYPE_CHECKING:
    from nki.ir.context import WarnedOnce

_Positions = tuple[tuple[int, ...], tuple[tuple[int, bool], ...], int | None]
"""Of what is written, of what is read and whether that is permuted, and of the accumulate flag."""

_PSUM = Memory.psum


class Hazards:
    """Follows the operations of one core in the author's order, and has `warn` warn."""

    def __init__(self, warn: WarnedOnce) -> None:
        self._warn = warn
        self._sums: dict[Tensor, list[_Sum]] = {}
        self._positions: dict[type[Operation], _Positions] = {}
        self._later: set[Register] = set()  # variables of loops whose first iteration is over

    def follow(self, nodes: list[Node], again: bool = True) -> None:
        """All operations of a body; those of a rolled loop twice, as one iteration meets what the
        one before has left. In the second of them loops inside are followed once."""
        for node in nodes:
            if isinstance(node, Op):
                self.observe(node)
                continue
            self.follow(node.body, again)
            if again:
                self._follow_again(node)

    def _follow_again(self, loop: Loop | While) -> None:
        if isinstance(loop, Loop):
            self._later.add(loop.variable)
            self.follow(loop.body, again=False)
            self._later.remove(loop.variable)
        else:
            self.follow(loop.body, again=False)

    def observe(self, op: Op) -> None:
        """The next operation. Most have nothing to look at, which takes as little as it can."""
        row, values = op.row, op.values
        found = self._positions.get(row)
        if found is None:
            found = self._positions[row] = _positions(row)
        writes, reads, flag = found
        sources = []
        for position, permuted in reads:
            source = values[position]
            if not isinstance(source, Access):
                continue
            if source.storage.memory is _PSUM:
                self._read(source)
            sources.append((source, permuted))
        for position in writes:
            dst = values[position]
            if not isinstance(dst, Access):
                continue
            storage = dst.storage
            for source, permuted in sources:
                if source.storage is storage and (permuted or source is not dst):
                    self._meet(op, dst, source, permuted)
            if dst.vector_offset is not None:
                continue
            if 0 in dst.strides and _repeats(dst):
                what = f"{row.name} writes elements of {storage.name!r} to one place"
                self._warn("repeated-destination", what, op.location)
            if storage.memory is _PSUM:
                self._written(op, dst, None if flag is None else values[flag], flag is not None)

    def forget(self, tensor: Tensor) -> None:
        """No operation on a tensor comes any more."""
        self._sums.pop(tensor, None)

    def _meet(self, op: Op, dst: Access, source: Access, permuted: bool) -> None:
        if meets_elsewhere(dst, source, permuted):
            what = f"{op.row.name} writes a part of {dst.storage.name!r} that it reads elsewhere"
            self._warn("shifted-overlap", what, op.location)

    # Sums in PSUM

    def _read(self, source: Access) -> None:
        view = view_of(source)
        for known in self._sums.get(_kept(source.storage), ()):
            if view is None or overlap(known.view, view):
                known.read = True

    def _written(self, op: Op, dst: Access, accumulate: Any, by_matmul: bool) -> None:
        """A matmul adds to `dst` or overwrites it, or another operation writes it."""
        view = view_of(dst)
        sums = self._sums.setdefault(_kept(dst.storage), [])
        if isinstance(accumulate, Predicate) and accumulate.op == ">":  # false in a first iteration
            accumulate = any(variable in self._later for variable, _ in accumulate.form.terms)
        if view is None or not isinstance(accumulate, (bool, np.bool_, type(None))):
            sums.clear()  # registers or symbols decide
            return
        name = dst.storage.name
        if by_matmul and accumulate:
            same = next((known for known in sums if known.view == view), None)
            if same is None:
                if any(overlap(known.view, view) for known in sums):
                    what = f"{op.row.name} adds to a part of a sum in {name!r}"
                    self._warn("partial-accumulation", what, op.location)
            elif same.read:
                what = f"{op.row.name} adds to {name!r}, which was read before"
                self._warn("accumulation-after-read", what, op.location)
                same.read = False
            return
        for known in [known for known in sums if overlap(known.view, view)]:
            if not known.read:
                what = f"{op.row.name} overwrites a sum in {name!r} that nothing has read"
                self._warn("sum-never-read", what, op.location)
            sums.remove(known)
        if by_matmul:
            sums.append(_Sum(view))


def _kept(storage: Any) -> Tensor:
    """What stands for a tensor beyond its life: in eager mode its description, without its data."""
    found: Tensor = getattr(storage, "description", storage)
    return found


class _Sum:
    """What matmuls add up in one region of PSUM, and whether it was read since the last of them."""

    __slots__ = ("read", "view")

    def __init__(self, view: View) -> None:
        self.view = view
        self.read = False


def _positions(row: type[Operation]) -> _Positions:
    """Where the operands are that a row writes and reads, and its accumulate flag. Where storage
    begins nothing is written."""
    if row is StorageBegin:
        return (), (), None
    flags = [position for position, _, field in row.attributes if field.kind is Kind.accumulate]
    apart = set(row.writes) if flags else set(row.writes) - set(row.reads)
    reads = tuple((p, field.permuted) for p, _, field in row.operands if p not in apart)
    return tuple(row.writes), reads, flags[0] if flags else None


def _repeats(dst: Access) -> bool:
    return any(
        stride == 0 and type(count) is int and count > 1
        for count, stride in zip(dst.shape, dst.strides)
    )
