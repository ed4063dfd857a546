"""`nki.meta.tensor`: where NKI 0.2 moved `nki.tensor`; see `nki.language`."""

from nki import tensor

__all__ = ["tensor"]
