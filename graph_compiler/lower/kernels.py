"""NKI kernels in graphs: the kernel's tile IR, where the graph calls it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from graph_compiler.hlo.operators.row import subject
from graph_compiler.kernels import Kernels, is_kernel_call, kernel_of
from graph_compiler.lower.sizes import DTYPES
from graph_compiler.schedule.fusion import contiguous, store
from graph_compiler.schedule.steps import place_of
from graph_compiler.schedule.views import Buffer, View
from isa.errors import NeuronError
from nki.ir.builder.inline import inline

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.lower.device import DeviceProgram
    from graph_compiler.schedule.nodes import Node, NodeForm
    from graph_compiler.schedule.schedule import Scheduler
    from nki.ir.nodes import TracedKernel
    from nki.ir.views.tensor import NkiTensor


@dataclass(frozen=True)
class Inlined:
    """A kernel with the memory of its parameters, and of its results that are no parameters."""

    kernel: TracedKernel
    parameters: list[View]
    results: list[tuple[int, View]]

    inner: ClassVar[tuple[list[Any], ...]] = ()

    @property
    def views(self) -> list[View]:
        """What is read and written."""
        return [*self.parameters, *(view for _, view in self.results)]

    @property
    def reads(self) -> list[Buffer]:
        return [view.buffer for view in self.parameters]

    @property
    def writes(self) -> list[Buffer]:
        written = [
            view.buffer
            for tensor, view in zip(self.kernel.parameters, self.parameters)
            if tensor.role == _WRITTEN
        ]
        return written + [view.buffer for _, view in self.results]

    def emit(self, device: DeviceProgram) -> None:
        kernel = self.kernel
        views = [_tensor(device, view) for view in self.parameters]
        bindings = dict(zip(kernel.parameter_names, views))
        for number, view in self.results:
            bindings[kernel.results[number].name] = _tensor(device, view)
        inline(kernel, bindings, device.builder)


def _tensor(device: DeviceProgram, view: View) -> NkiTensor:
    pattern = list(zip(view.strides, view.dims)) or [(1, 1)]
    return device.elements(place_of(view), view.type, pattern)


def native_kernel(kernels: Kernels) -> Callable[[Scheduler, Node], Any]:
    """How to schedule calls of these kernels; None for other custom calls."""

    def handle(scheduler: Scheduler, node: Node) -> Any:
        item = node.instruction
        assert item is not None
        return _inlined(scheduler, node, kernels) if is_kernel_call(item) else None

    return handle


def _inlined(scheduler: Scheduler, node: Node, kernels: Kernels) -> Any:
    from nki.trace.call import TensorSpec

    item = node.instruction
    assert item is not None
    kernel = kernel_of(item, kernels)
    device: Any = scheduler.program
    for type, dims in [(o.type, o.dims) for o in node.operands] + node.results:
        if type not in DTYPES or 0 in dims:
            raise NeuronError("hlo-not-compiled", f"{subject(item)} with {type}{list(dims)}")
    specs = [TensorSpec(o.dims or (1,), DTYPES[o.type]) for o in node.operands]
    traced = kernel.trace(*specs, target=device.target.name)
    _check(item, traced, node)
    arguments = [contiguous(device, scheduler.value(operand)) for operand in node.operands]
    parameters = [
        _copied(device, view) if tensor.role == _WRITTEN else view
        for tensor, view in zip(traced.parameters, arguments)
    ]
    made: list[View] = []
    own: list[tuple[int, View]] = []
    for number, (tensor, form) in enumerate(zip(traced.results, node.results)):
        if tensor in traced.parameters:  # written in place, and given back
            made.append(parameters[traced.parameters.index(tensor)])
        else:
            made.append(device.buffer(*form))
            own.append((number, made[-1]))
    device.steps.append(Inlined(traced, parameters, own))
    return made[0] if len(node.results) == 1 else made


_WRITTEN = "inout"
"""The role of parameters that a kernel writes to."""


def _copied(device: Any, view: View) -> View:
    """What a kernel writes to in place, apart from the value that others may still read."""
    target: View = device.buffer(view.type, view.dims)
    store(device, view, target)
    return target


def _check(item: Instruction, traced: TracedKernel, node: Node) -> None:
    """The kernel must take and give what the graph states."""
    operands = [(operand.type, operand.dims) for operand in node.operands]
    for what, tensors, forms in (
        ("takes", traced.parameters, operands),
        ("gives", traced.results, node.results),
    ):
        found = [(tensor.dtype, tuple(tensor.shape)) for tensor in tensors]
        wanted = [_device_form(form) for form in forms]
        if found != wanted:
            raise NeuronError(
                "hlo-shape-mismatch",
                f"{subject(item)}: kernel {traced.name} {what} {_written(found)}; the graph states "
                f"{_written(wanted)}.",
                why="A kernel is traced for the operands of the call, and gives its results.",
            )


def _device_form(form: NodeForm) -> NodeForm:
    type, dims = form
    return DTYPES[type], dims or (1,)


def _written(forms: list[Any]) -> str:
    return "(" + ", ".join(f"{dtype}{list(shape)}" for dtype, shape in forms) + ")"
