"""What Python and notebooks show of a view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from isa.errors import NeuronError
from nki.completion import Listed
from nki.ir.context import CURRENT

if TYPE_CHECKING:
    from nki.ir.views.tensor import NkiTensor

_NO_VALUES = "(no values while tracing; NKI_MODE=eager has them)"
"""What `print` of a tensor says in modes that run a kernel's Python before there is data."""


class Shown(Listed):
    """The part of `NkiTensor` that describes it."""

    __slots__ = ()
    _internal = frozenset({"geometry", "limits", "vector_bound", "vector_offset", "vector_stride"})

    def __iter__(self: Any) -> NoReturn:
        raise NeuronError(
            "not-supported",
            what=f"iteration over {self.name!r}",
            why="A tensor is no sequence of Python: its rows are views, which are taken by index.",
            hint="Iterate over indices: for i in range(t.shape[0]): t[i] ...",
        )

    def __repr__(self: Any) -> str:
        """The description and, in eager mode, the data: `print(tensor)` in a kernel, and what
        debuggers show."""
        view: NkiTensor = self
        context = CURRENT.get()
        return (
            f"NkiTensor({view.name!r}, shape={view.shape}, dtype={view.dtype}, "
            f"buffer={view.buffer.value}, strides={view.strides}, offset={view.offset})"
        ) + ("" if context is None else context.preview(view))

    def __str__(self: Any) -> str:
        text = repr(self)
        return text if "\n" in text or CURRENT.get() is None else f"{text} {_NO_VALUES}"

    def _repr_html_(self: Any) -> str:
        """What notebooks show: shape, memory and, in eager mode, statistics and the corner."""
        from nki.displays.notebook import tensor_display

        view: NkiTensor = self
        context = CURRENT.get()
        contents = None if context is None else context.contents(view)
        return tensor_display(view.name, view.dtype, view.shape, view.buffer, contents)
