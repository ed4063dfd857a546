"""Tensors within others become what they name: bytes of the tensors that have memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from isa.affine import Affine, Polynomial, prove_nonnegative
from isa.affine.bounds import extremes
from isa.dtypes import DTYPES
from isa.errors import NeuronError
from isa.operations.control import StorageBegin
from isa.program import Guard
from nki.ir.locations import resolve
from nki.ir.nodes import Access, Kernel, LimitedAccess, Node, Op, Tensor, bytes_of, storages
from nki.ir.rewrite import with_body
from nki.ir.verify import is_negative, reach


@dataclass(frozen=True, slots=True)
class ResolveRoots:
    """Accesses to tensors within others become accesses to the tensors that these lie in, so that
    what comes behind sees which of them share bytes, and registers that decide where a tensor lies
    are registers of an access.

        tensor %t0 "arena": shared_hbm uint8[8192] role=inout
        tensor %t1 "row": shared_hbm float32[1024] within=%t0
          place %t1 at=(%r1*4096)
          dma_copy dst=%t2[1024 : 1 @ 0] src=%t1[1024 : 1 @ 0]
        ->
          dma_copy dst=%t2[1024 : 1 @ 0] src=%t0[1024 : 1 @ %r1*1024]:float32

    A view stays inside of the tensor that it was a view of: where launch symbols decide that it is
    a guard, where registers do, `LimitedAccess` has the run look. A tensor begins by its bytes;
    that is left out where nothing has used them yet. Parameters and results stay declared.

    Raises NeuronError out-of-bounds for a view that leaves its tensor.
    """

    name: str = "roots"

    def run(self, kernel: Kernel) -> Kernel:
        if not any(tensor.within for tensor in kernel.tensors):
            return kernel
        guards: dict[str, Guard] = {guard.text: guard for guard in kernel.guards}
        alone = len(kernel.bodies) == 1
        declared = {*kernel.parameters, *kernel.results}
        bodies = [
            _Body(guards, declared, alone).nodes(body, outermost=True) for body in kernel.bodies
        ]
        tensors = [t for t in kernel.tensors if t.within is None or t in declared]
        resolved = kernel.with_bodies(bodies, tensors, kernel.placement)
        resolved.guards = list(guards.values())
        return resolved


class _Body:
    """Rewrites the body of a core. `used` are the tensors that operations above have used, by the
    tensor that they lie in; `declared` collects those that the program has to know; `alone` says
    that no other core may have used any."""

    def __init__(self, guards: dict[str, Guard], declared: set[Tensor], alone: bool) -> None:
        self._guards = guards
        self._declared = declared
        self._alone = alone
        self._used: dict[Tensor, dict[Tensor, None]] = {}
        self._accesses: dict[int, tuple[Access, Access]] = {}
        self._ops: dict[Op, Op] = {}

    def nodes(self, nodes: Iterable[Node], outermost: bool = False) -> list[Node]:
        result: list[Node] = []
        for node in nodes:
            if not isinstance(node, Op):
                result.append(with_body(node, self.nodes(node.body)))
                continue
            if node.row is StorageBegin and outermost and self._is_fresh(node.values[0].storage):
                continue
            result.append(self._op(node))
            for tensor in storages(node.values):
                self._used.setdefault(tensor.in_root()[0], {})[tensor] = None
        return result

    def _is_fresh(self, tensor: Tensor) -> bool:
        """Whether the bytes of a tensor in HBM hold nothing where it begins."""
        root, first = tensor.in_root()
        if tensor.memory.on_chip:
            return False
        if root.role != "local" and root.role != "output":
            return False
        if tensor is root and not root.divided:
            return False  # as in kernels without tensors within others
        if root.core is None and not self._alone:
            return False
        return all(_apart(tensor, first, other) for other in self._used.get(root, ()))

    def _op(self, op: Op) -> Op:
        values = tuple([self._access(v, op) if isinstance(v, Access) else v for v in op.values])
        after = tuple([self._ops.get(other, other) for other in op.after])
        if all(new is old for new, old in zip((*values, *after), (*op.values, *op.after))):
            return op
        self._ops[op] = copy = Op(op.row, values, op.location, op.name, after)
        return copy

    def _access(self, access: Access, op: Op) -> Access:
        known = self._accesses.get(id(access))
        if known is None:
            known = self._accesses[id(access)] = access, self._resolved(access, op)
        return known[1]

    def _resolved(self, access: Access, op: Op) -> Access:
        tensor, vector = access.storage, access.vector_offset
        if vector is not None:
            vector = self._access(vector, op)
        if tensor.within is None and vector is access.vector_offset:
            return access
        root, first = tensor.in_root()
        decided = tensor.within is None or self._stays(access, op)
        if not decided and not isinstance(first, Affine):
            self._declared.add(tensor)  # so that messages know it
        view = Access(
            root,
            access.dtype,
            access.shape,
            access.strides,
            access.offset + first // DTYPES[access.dtype].size,
            vector,
            access.vector_stride,
            access.vector_bound,
        )
        return view if decided else LimitedAccess(view, (first, first + bytes_of(tensor)))

    def _stays(self, access: Access, op: Op) -> bool:
        """Whether it is known, once launch symbols are, that a view stays in its tensor."""
        tensor, shape, strides = access.storage, list(access.shape), list(access.strides)
        if access.vector_offset is not None:
            shape[0], strides[0] = access.vector_bound, access.vector_stride
        if any(type(count) is int and count == 0 for count in shape):
            return True
        size = DTYPES[access.dtype].size
        low, high = reach(access.offset, shape, strides)
        decided = True
        for distance in (low * size, bytes_of(tensor) - (high + 1) * size):
            if prove_nonnegative(distance):
                continue
            if is_negative(distance):
                raise NeuronError(
                    "out-of-bounds",
                    f"{access.dtype}{list(access.shape)} at element {access.offset} with strides "
                    f"{list(access.strides)} leaves {tensor.name!r}, which is "
                    f"{tensor.dtype}{list(tensor.shape)}",
                    location=resolve(op.location),
                )
            distance, _ = extremes(distance)
            if distance is None or not isinstance(distance, Polynomial):
                decided = False
                continue
            text = f"{distance} >= 0 (a view of {tensor.name} stays inside)"
            self._guards.setdefault(text, Guard(distance, text, op.location))
        return decided


def _apart(tensor: Tensor, first: Any, other: Tensor) -> bool:
    """Whether two tensors of one root are known to share no byte."""
    _, its = other.in_root()
    return bool(
        prove_nonnegative(its - first - bytes_of(tensor))
        or prove_nonnegative(first - its - bytes_of(other))
    )
