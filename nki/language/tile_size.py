"""`nl.tile_size`: the limits of tiles on the current target.

Names are those of SDK nki/api/nki.language.tile_size.rst; values come from `isa.target`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isa.target import Target
from nki import settings
from nki.ir.context import CURRENT
from nki.superseded import superseded_names

_FP32_BYTES = 4

_superseded = superseded_names("nki.language.tile_size")


class TileSize:
    """Limits of tiles on the target of the running kernel, else on the default target."""

    @property
    def _target(self) -> Target:
        context = CURRENT.get()
        return settings.target() if context is None else context.target

    @property
    def pmax(self) -> int:
        """Most partitions of a tile."""
        return self._target.partitions.value

    @property
    def psum_bank_fmax(self) -> int:
        """Most fp32 elements per partition of a PSUM bank."""
        return self.psum_bank_fmax_bytes // _FP32_BYTES

    @property
    def psum_bank_fmax_bytes(self) -> int:
        """Bytes per partition of a PSUM bank."""
        return self._target.psum_bank_bytes.value

    @property
    def psum_num_banks(self) -> int:
        """PSUM banks per partition."""
        return self._target.psum_banks.value

    @property
    def gemm_stationary_fmax(self) -> int:
        """Most free elements of the stationary matrix of a matmul."""
        return self._target.stationary_free_max.value

    @property
    def gemm_moving_fmax(self) -> int:
        """Free elements of the moving matrix of a matmul whose fp32 result fits one PSUM bank: 512
        on every target (SDK nki/get-started/about/tiling-overview.rst). gen4 takes more."""
        return self.psum_bank_fmax

    @property
    def bn_stats_fmax(self) -> int:
        """Most free elements of bn_stats."""
        return self._target.batch_norm_free_max.value

    @property
    def psum_min_align(self) -> int:
        """Alignment of free offsets in PSUM, in bytes."""
        return self._target.psum_alignment.value

    @property
    def sbuf_min_align(self) -> int:
        """Alignment of free offsets in SBUF, in bytes."""
        return self._target.sbuf_alignment.value

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Bytes of SBUF per partition."""
        return self._target.sbuf_bytes_per_partition.value

    @property
    def sbuf_fmax(self) -> int:
        """fp32 elements of SBUF per partition."""
        return self.sbuf_fmax_bytes // _FP32_BYTES

    @property
    def sbuf_size_bytes(self) -> int:
        """Bytes of SBUF in all partitions."""
        return self.sbuf_fmax_bytes * self.pmax

    def __dir__(self) -> list[str]:
        return [name for name in vars(TileSize) if not name.startswith("_")]

    if not TYPE_CHECKING:  # superseded names are none that completion or type checkers know

        def __getattr__(self, name: str) -> Any:
            try:
                return _superseded(name)
            except AttributeError:
                what = f"nl.tile_size has no attribute {name!r}"
                raise AttributeError(what, name=name, obj=self) from None


tile_size = TileSize()
