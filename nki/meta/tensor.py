"""`nki.meta.tensor`: the tensor class under the module name of NKI 0.2; see `nki.language`."""

from nki.ir.views import tensor as _tensor
from nki.superseded import superseded_names

__getattr__ = superseded_names(__name__, {"NkiTensor": _tensor.NkiTensor})
