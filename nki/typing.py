"""`nki.typing`: the annotations of NKI 0.1 to 0.3. A tensor argument is an `nl.NkiTensor` now."""

from __future__ import annotations

from typing import Annotated, Any

from nki.superseded import superseded_names


class _TensorAnnotation:
    """`tensor` or `tensor[shape]` as a parameter's annotation; the kernel gets an `NkiTensor`."""

    def __class_getitem__(cls, shape: Any) -> Any:
        from nki.language import NkiTensor

        return Annotated[NkiTensor, shape]


__getattr__ = superseded_names(
    __name__, {"tensor": _TensorAnnotation, "mutable_tensor": _TensorAnnotation}
)
