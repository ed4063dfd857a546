"""`nki.tensor`: the tensor class under the module name of NKI 0.2 and 0.3; see `nki.language`."""

from nki.language.tensor import NkiTensor

__all__ = ["NkiTensor"]
