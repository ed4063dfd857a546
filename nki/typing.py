"""`nki.typing`: annotations of tensor parameters, `nt.tensor[128, 512]`. The kernel gets an
`nl.NkiTensor` of the shape that its argument has.

Source: SDK nki/migration/index.rst, "nki.typing module".
"""

from __future__ import annotations

from typing import Annotated, Any

from nki.superseded import superseded_names


class tensor:
    """`nt.tensor` or `nt.tensor[shape]` as a parameter's annotation.

    >>> import numpy as np, nki, nki.language as nl, nki.typing as nt
    >>> @nki.jit
    ... def kernel(a: nt.tensor[2, 3]):
    ...     print(a.shape)
    >>> kernel(np.zeros((2, 3), np.float32))
    (2, 3)
    """

    def __class_getitem__(cls, shape: Any) -> Any:
        from nki.language import NkiTensor

        return Annotated[NkiTensor, shape]


__getattr__ = superseded_names(__name__)

__all__ = ["tensor"]


def __dir__() -> list[str]:
    return __all__
