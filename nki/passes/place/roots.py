"""Tensors within others become what they name: bytes of the tensors that have memory.

A tensor may lie `within` another, at a byte that launch symbols or registers may decide: a row of
equal layers' parameters, a slice of an argument, bytes that internal tensors take in turns. Views
of it become views of the tensor that has memory, so that everything behind sees exactly which bytes
two of them share. The view's own bounds are looked at here, or become guards, or go into the
operand for the run to look at. Programs declare such tensors only for arguments, results and
messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isa.affine import Affine, Polynomial, bounds, prove_nonnegative, symbols_of
from isa.affine.bounds import extremes
from isa.dtypes import DTYPES
from isa.errors import NeuronError
from isa.program import Guard
from nki.ir.begins import begun_by
from nki.ir.locations import resolve
from nki.ir.nodes import Access, LimitedAccess, Node, Op, Tensor, TracedKernel, bytes_of, tensors_of
from nki.ir.replace import AccessReplacer, seen_through
from nki.ir.views.pattern import ends


@dataclass(frozen=True, slots=True)
class ResolveRoots:
    """Accesses to tensors within others become accesses to the tensors that these lie in. So later
    passes see which of them share bytes. Registers that decide where a tensor lies become registers
    of an access.

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

    def run(self, kernel: TracedKernel) -> TracedKernel:
        if not any(tensor.within for tensor in kernel.tensors):
            return kernel
        guards: dict[str, Guard] = {guard.text: guard for guard in kernel.guards}
        declared = {*kernel.parameters, *kernel.results}
        bodies = [_RootedBody(kernel, guards, declared).nodes(body) for body in kernel.bodies]
        tensors = [t for t in kernel.tensors if t.within is None or t in declared]
        resolved = kernel.with_bodies(bodies, tensors, kernel.placement)
        resolved.guards = list(guards.values())
        return resolved


class _RootedBody(AccessReplacer):
    """Rewrites the body of a core. `used` are the tensors whose bytes may hold something, at first
    the parameters, by the tensor that they lie in. `declared` collects those that the program has
    to know. `alone` says that no other core may have used any."""

    def __init__(
        self, kernel: TracedKernel, guards: dict[str, Guard], declared: set[Tensor]
    ) -> None:
        super().__init__()
        self._guards = guards
        self._declared = declared
        self._alone = len(kernel.bodies) == 1
        self._depth = 0
        self._used: dict[Tensor, dict[Tensor, None]] = {}
        for tensor in kernel.parameters:
            self._use(tensor)

    def node(self, node: Node) -> list[Node]:
        if not isinstance(node, Op):
            self._depth += 1
            copies = super().node(node)
            self._depth -= 1
            return copies
        begun = None if self._depth else begun_by(node)
        if begun is not None and self._is_fresh(begun):
            return []
        for tensor in tensors_of(node):
            self._use(tensor)
        return super().node(node)

    def _use(self, tensor: Tensor) -> None:
        self._used.setdefault(tensor.in_root()[0], {})[tensor] = None

    def _is_fresh(self, tensor: Tensor) -> bool:
        """Whether the bytes of a tensor in HBM hold nothing where it begins."""
        root, first = tensor.in_root()
        if tensor.memory.on_chip or not root.divided:
            return False
        if root.core is None and not self._alone:
            return False
        return all(_apart(tensor, first, other) for other in self._used.get(root, ()))

    def replaced(self, access: Access, op: Op) -> Access:
        tensor = access.storage
        if tensor.within is None:
            return access
        root, first = tensor.in_root()
        view = seen_through(access, root, access.offset + first // DTYPES[access.dtype].size)
        if self._stays(access, op):
            return view
        if not isinstance(first, Affine):
            self._declared.add(tensor)  # so that messages know it
        return LimitedAccess(view, (first, first + bytes_of(tensor)))

    def _stays(self, access: Access, op: Op) -> bool:
        """Whether it is known, once launch symbols are, that a view stays in its tensor."""
        tensor, shape, strides = access.storage, list(access.shape), list(access.strides)
        if access.vector_offset is not None:
            shape[0], strides[0] = access.vector_bound, access.vector_stride
        if any(type(count) is int and count == 0 for count in shape):
            return True
        size = DTYPES[access.dtype].size
        low, high = (access.offset + end for end in ends(shape, strides))
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


def is_negative(distance: Any) -> bool:
    """Whether a form is known to be negative for some values that its variables take."""
    proven = prove_nonnegative(distance)
    exact = _exact(distance) and bounds(distance)[0] is not None
    return not proven and (proven is not None or exact)


def _exact(form: Any) -> bool:
    """Whether interval bounds of the form are reached: no launch symbols are in it."""
    if not isinstance(form, Affine):
        return type(form) is int
    return not symbols_of(form) and all(
        type(variable.lower) is int and type(variable.upper) is int for variable, _ in form.terms
    )
