"""Kernels: their grid and target, and kernels that call others."""

from traced import operations, sbuf, traced

import nki
import nki.isa as nisa
import nki.language as nl
from nki.ir.locations import resolve as line_of


def test_nested_kernels_are_inlined():
    @nki.jit
    def double(tile):
        nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)

    def kernel(a):
        tile = sbuf(128, 8)
        nisa.memset(dst=tile, value=1.0)
        double(tile)

    kernel = traced(kernel, (4, 4))
    assert len(operations(kernel, "tensor_tensor")) == 1
    assert line_of(operations(kernel, "tensor_tensor")[0].location).function == "double"


def test_the_grid_and_the_target():
    seen = []

    def kernel(a):
        seen.append((nl.program_id(0), nl.num_programs(), nl.program_ndim()))
        assert nisa.get_nc_version() is nisa.nc_version.gen3
        assert nl.tile_size.pmax == 128 and nl.tile_size.psum_bank_fmax == 512
        assert nl.tile_size.gemm_moving_fmax == 512 and nl.tile_size.psum_num_banks == 8

    traced(kernel, (4, 4))
    traced(kernel, (4, 4), cores=2)
    assert seen == [(0, 1, 0), (0, 2, 1), (1, 2, 1)]
    assert nl.tile_size.sbuf_fmax * 4 == nl.tile_size.sbuf_fmax_bytes
