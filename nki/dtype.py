"""`nki.dtype`: the data types under the module name of NKI 0.2 and 0.3; see `nki.language`."""

from nki.language.dtypes import *  # noqa: F403
from nki.language.dtypes import __all__ as __all__
