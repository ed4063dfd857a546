"""Contexts that an author's Python code calls: what they ask of its frames and source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from nki.ir.builder.core_builder import CoreBuilder
from nki.ir.builder.declarations import Declarations
from nki.ir.context import CURRENT, Location
from nki.ir.locations import call_path, is_while_condition
from nki.ir.nodes import Tensor
from nki.ir.views.layout import dense_strides
from nki.ir.views.tensor import NkiTensor, strided
from nki.superseded import hint_at_call
from nki.trace.call import call_arguments, kernel_error, map_tensors
from nki.trace.shared import SharedTensors


class Authored(CoreBuilder):
    """A core whose operations an author's function calls; `shared` pairs what the cores make in
    shared HBM."""

    def __init__(self, declarations: Declarations, core: int, shared: SharedTensors) -> None:
        super().__init__(declarations, core)
        self.shared = shared

    def _shared(
        self, shape: tuple[Any, ...], dtype: str, name: str, location: Location, data: Any
    ) -> Tensor:
        """The shared HBM tensor that every core gets from its call at this place."""
        self.loops.refuse_shared()
        path = () if self.cores == 1 else call_path(call_kernel.__code__)
        paired = self.shared.pair(self.core, name, path, shape, dtype, location, data)
        if paired is not None:
            return paired
        storage = super()._shared(shape, dtype, name, location, data)
        self.shared.add(self.core, name, path, storage)
        return storage

    def truth(self, register: Any, frame: FrameType) -> bool:
        location = (frame.f_code, frame.f_lasti)
        if not is_while_condition(location):
            return super().truth(register, frame)
        hint_at_call("while register:")
        return self.while_condition(register, location, frame)


def call_kernel(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    parameters: Iterable[Tensor],
    context: Authored,
) -> Any:
    """Call a kernel function with a core as its context; what it returns.

    `arguments` are by parameter name. The arrays and `TensorSpec`s among them become views of the
    `parameters`, in order. NeuronErrors get the kernel's line; the kernel's own exceptions come out
    unchanged.
    """
    remaining = iter(parameters)

    def view(value: Any, name: str) -> NkiTensor:
        tensor = next(remaining)
        return strided(tensor, tensor.dtype, tensor.shape, dense_strides(tensor.shape))

    views = {name: map_tensors(value, name, view) for name, value in arguments.items()}
    args, kwargs = call_arguments(function, views)
    token = CURRENT.set(context)
    try:
        returned = function(*args, **kwargs)
        context.finish()
        return returned
    except Exception as error:
        found = kernel_error(error)
        if found is None:
            raise
        context.explain_shapes(found)
        if found is error:
            raise
        raise found.with_traceback(error.__traceback__) from None
    finally:
        found = None  # its traceback has this frame
        CURRENT.reset(token)
