"""Parameters of an inlined kernel, bound to views of tensors of the kernel around it.

The kernel addresses the elements of its tensor as they lie in row-major order. A view whose rows
are apart has other steps: a step of the kernel is taken apart into steps along the view's
dimensions, and put together again from the view's strides. That is right as long as no index leaves
its dimension.
"""

from __future__ import annotations

from typing import Any

from isa.affine import Affine, exact_quotient, identical, prove_nonnegative
from isa.affine.linear import affine
from isa.errors import NeuronError
from nki.ir.builder.results import alike
from nki.ir.nodes import Access, Tensor
from nki.ir.views.layout import dense_strides, merge
from nki.ir.views.pattern import DtypeScale
from nki.ir.views.tensor import NkiTensor


class Binding:
    """A view that stands for a tensor of the kernel `kernel`, on one core.

    Raises not-a-tensor, wrong-memory, core-mismatch, dtype-not-allowed, shape-mismatch, and
    view-not-allowed for a view that a run-time index moves.
    """

    __slots__ = ("_dense", "_runs", "kernel", "tensor", "view")

    def __init__(self, kernel: str, tensor: Tensor, view: NkiTensor, core: int) -> None:
        self.kernel = kernel
        self.tensor = tensor
        self.view = view
        self._check(core)
        runs = merge(view.shape, view.strides) or [(1, 1)]
        self._runs = runs
        self._dense = dense_strides(tuple(size for size, _ in runs))

    def _check(self, core: int) -> None:
        tensor, view = self.tensor, self.view
        what = f"{tensor.name} of {self.kernel}"
        if not isinstance(view, NkiTensor):
            raise NeuronError("not-a-tensor", what=f"{what} is bound to {view!r}, no tensor")
        storage = view.storage
        if storage.memory.on_chip:
            raise NeuronError(
                "wrong-memory",
                what=f"{what} is bound to {storage.name}, which is in {storage.memory.value}",
                why="The tensors that a kernel takes and returns are in HBM.",
                hint="Store it in HBM first.",
            )
        if storage.core not in (None, core):
            raise NeuronError(
                "core-mismatch",
                what=f"{what} on core {core} is bound to {storage.name} of core {storage.core}",
                hint="Bind a tensor in shared HBM.",
            )
        if view.is_indirect():
            raise self._refused("which a run-time index moves")
        if not alike(view, tensor):
            code = "shape-mismatch" if view.dtype == tensor.dtype else "dtype-not-allowed"
            raise NeuronError(
                code,
                what=f"{what} is {tensor.dtype}{list(tensor.shape)}, and bound to a view that is "
                f"{view.dtype}{list(view.shape)}",
                why="An inlined kernel is of the shapes and data types that it was traced for.",
                hint="Trace the kernel for the tensors that it is to work on.",
            )

    def access(self, access: Access) -> Access:
        """The bound view's elements that an access of the tensor means.

        Raises view-not-allowed where they do not lie in a pattern.
        """
        view = self.view
        scale = DtypeScale(view.dtype, access.dtype)
        if access.dtype != view.dtype and not self._lies_together():
            raise self._refused(f"whose rows are apart, and read as {access.dtype}")
        strides = tuple(self._step(stride) for stride in access.strides)
        moved = self._step(access.offset) + scale.form(view.offset, "offset")
        self._check_indices(access)
        return Access(
            view.storage,
            access.dtype,
            access.shape,
            strides,
            moved,
            access.vector_offset,
            self._step(access.vector_stride),
            access.vector_bound,
        )

    def _lies_together(self) -> bool:
        return len(self._runs) == 1 and identical(self._runs[0][1], 1)

    def _step(self, form: Any) -> Any:
        """A distance in the tensor as the distance in the view."""
        if self._lies_together():
            return form
        total: Any = 0
        for index, (_, stride) in zip(self._indices(form), self._runs):
            total = total + index * stride
        return total

    def _indices(self, form: Any) -> list[Any]:
        """A distance as one along each of the view's dimensions."""
        if isinstance(form, Affine):
            found = self._indices(form.constant)
            for register, coefficient in form.terms:
                parts = self._indices(coefficient)
                found = [
                    old if part.__class__ is int and not part else old + affine(register) * part
                    for old, part in zip(found, parts)
                ]
            return found
        found = []
        rest = form
        quotient: Any
        for dense in self._dense:
            if type(rest) is int and type(dense) is int:
                sign = -1 if rest < 0 else 1
                quotient = sign * (abs(rest) // dense)
            else:
                exact = exact_quotient(rest, dense)
                quotient = 0 if exact is None else exact
            found.append(quotient)
            rest = rest - quotient * dense
        return found

    def _check_indices(self, access: Access) -> None:
        """The index of each dimension but the first must stay in it for all elements: then none
        carries into the next row."""
        steps = list(zip(access.shape, access.strides))
        if access.vector_offset is not None:
            steps[0] = access.vector_bound, access.vector_stride
        low = self._indices(access.offset)
        high = list(low)
        for count, stride in steps:
            for dimension, step in enumerate(self._indices(stride)):
                reach = (count - 1) * step
                if prove_nonnegative(reach):
                    high[dimension] = high[dimension] + reach
                else:
                    low[dimension] = low[dimension] + reach
        for (size, _), first, last in list(zip(self._runs, low, high))[1:]:
            if not (prove_nonnegative(first) and prove_nonnegative(size - 1 - last)):
                raise self._refused(
                    f"which the kernel accesses as {list(access.shape)} with strides "
                    f"{list(access.strides)}: no pattern of the view has these elements"
                )

    def _refused(self, what: str) -> NeuronError:
        view = self.view
        return NeuronError(
            "view-not-allowed",
            what=f"{self.tensor.name} of {self.kernel} is bound to a view of {view.name!r} with "
            f"shape {list(view.shape)} and strides {list(view.strides)}, {what}",
            why="An inlined kernel accesses its caller's tensors where they are.",
            hint="Bind a whole tensor, or a copy of the view in one of its own.",
        )
