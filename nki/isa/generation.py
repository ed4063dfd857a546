"""Which silicon a kernel is compiled for."""

from __future__ import annotations

from isa.enums import NcVersion
from nki import settings
from nki.ir.context import CURRENT


def get_nc_version() -> NcVersion:
    """The NeuronCore generation of the running kernel's target, else of the default target.

    Raises unknown-target where none runs and the default target (NKI_PLATFORM_TARGET) is unknown.
    Source: SDK nki/api/nki.isa.rst#nki.isa.get_nc_version

    >>> import numpy as np, nki, nki.isa as nisa
    >>> @nki.jit(platform_target="trn2")
    ... def kernel():
    ...     print(nisa.get_nc_version() >= nisa.nc_version.gen3)
    >>> kernel()
    True
    """
    context = CURRENT.get()
    target = settings.target() if context is None else context.target
    return NcVersion(target.generation)


FIRST_REVISION = 0
"""The revision of every generation's silicon that the tables describe."""


def get_nc_sub_version() -> int:
    """The revision of the target's silicon within its generation: 0, the first one.

    Source: SDK nki/api/nki.isa.rst#nki.isa.get_nc_sub_version

    >>> import nki.isa as nisa
    >>> nisa.get_nc_sub_version()
    0
    """
    return FIRST_REVISION
