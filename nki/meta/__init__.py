"""`nki.meta.tensor`: where NKI 0.2 moved `nki.tensor`; see `nki.language`."""

from nki.meta import tensor

__all__ = ["tensor"]
