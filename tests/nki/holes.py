"""What an enemy tries: kernels that a run must not pass in silence.

Each takes `a`, float32[128, 64], and `b`, float32[64, 128], and has the code of an error or of a
warning, which all modes give at the line `# here` (where there is none, at the result of `result`).
Other tests have what else may decide what runs (`tests/simulator/test_uninitialised_control.py`),
what two cores write (`test_same_writes.py`, `test_replicated.py`), overlaps within one instruction
and sums in PSUM (`test_warned.py`), addresses (`test_shared_addresses.py`), and runs that do not
end (`test_watchdog.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl


@dataclass(frozen=True)
class Hole:
    """`code`: of the error; `cores`: of the launch."""

    kernel: Callable[..., Any]
    code: str
    cores: int = 1


HOLES: dict[str, Hole] = {}


def hole(code: str, cores: int = 1) -> Callable[[Callable[..., Any]], Any]:
    """Put a kernel into the table."""

    def add(kernel: Callable[..., Any]) -> Callable[..., Any]:
        assert kernel.__name__ not in HOLES
        HOLES[kernel.__name__] = Hole(kernel, code, cores)
        return kernel

    return add


def tile(shape, dtype=nl.float32, buffer=nl.sbuf, address=None):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer, address=address)


def shared(shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm)


def result(data):
    out = nl.ndarray(data.shape, dtype=data.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=data)
    return out


def register_of(value):
    """A register that the compiler knows nothing of."""
    held, register = tile((1, 1), nl.int32), nisa.register_alloc()
    nisa.memset(dst=held, value=value)
    nisa.register_load(register, held)
    return register


# Data that was never written, in each kind of operand


@hole("uninitialised-output")
def a_predicate_of_a_copy(a, b):
    x, z, mask = nl.load(a), nl.load(a), tile((128, 64), nl.uint8)
    nisa.tensor_copy_predicated(dst=z, src=x, predicate=mask)  # here
    return result(z)


@hole("uninitialised-output")
def a_predicate_of_a_selection(a, b):
    x, z, mask = nl.load(a), tile((128, 64)), tile((128, 64), nl.uint8)
    nisa.select_reduce(dst=z, predicate=mask, on_true=x, on_false=0.0)  # here
    return result(z)


@hole("uninitialised-output")
def a_bound_of_a_range(a, b):
    x, z, low, high = nl.load(a), tile((128, 64)), tile((128, 1)), tile((128, 1))
    nisa.memset(dst=low, value=0.0)
    nisa.range_select(  # here
        dst=z,
        on_true_tile=x,
        comp_op0=nl.greater_equal,
        comp_op1=nl.less,
        bound0=low,
        bound1=high,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
        reduce_op=nl.maximum,
        range_start=0,
        on_false_value=-3.4028234663852886e38,
    )
    return result(z)


@hole("uninitialised-output")
def an_operand_a_partition(a, b):
    x, factor = nl.load(a), tile((128, 1))
    nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=factor)  # here
    return result(x)


@hole("uninitialised-output")
def a_bias(a, b):
    x, z, bias = nl.load(a), tile((128, 64)), tile((128, 1))
    nisa.activation(dst=z, op=nl.exp, data=x, bias=bias)  # here
    return result(z)


@hole("uninitialised-output")
def the_beginning_of_a_scan(a, b):
    x, z, first = nl.load(a), tile((128, 64)), tile((128, 1))
    nisa.tensor_tensor_scan(  # here
        dst=z, data0=x, data1=x, initial=first, op0=nl.multiply, op1=nl.add
    )
    return result(z)


@hole("uninitialised-output")
def weights_of_a_product(a, b):
    product, weights, z = tile((64, 128), buffer=nl.psum), tile((64, 64)), tile((64, 128))
    nisa.nc_matmul(dst=product, stationary=weights, moving=nl.load(b))  # here
    nisa.tensor_copy(dst=z, src=product)
    return result(z)


@hole("uninitialised-output")
def a_sum_that_nothing_begins(a, b):
    product, z = tile((64, 128), buffer=nl.psum), tile((64, 128))
    left, right = nl.load(a[0:64, :]), nl.load(b)
    nisa.nc_matmul(dst=product, stationary=left, moving=right, accumulate=True)  # here
    nisa.tensor_copy(dst=z, src=product)
    return result(z)


@hole("uninitialised-output")
def a_transposed_tile(a, b):
    x, turned, z = tile((128, 64)), tile((64, 128), buffer=nl.psum), tile((64, 128))
    nisa.nc_transpose(dst=turned, data=x)  # here
    nisa.tensor_copy(dst=z, src=turned)
    return result(z)


@hole("uninitialised-output")
def half_of_a_tile(a, b):
    x = tile((128, 64))
    nisa.dma_copy(dst=x[:, 0:32], src=a[:, 0:32])
    nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=1.0)  # here
    return result(x)


@hole("uninitialised-output")
def private_memory(a, b):
    held = tile((128, 64), buffer=nl.private_hbm)
    return result(nl.load(held))  # here


@hole("uninitialised-control")
def a_row_by_a_register(a, b):
    at, x = nisa.register_alloc(), tile((16, 64))
    nisa.register_load(at, tile((1, 1), nl.int32))  # here
    nisa.dma_copy(dst=x, src=a[nl.ds(at, 16), :])
    return result(x)


# Results that are not written


@hole("output-not-written")
def half_of_a_result(a, b):
    out = shared((128, 64))  # here
    nisa.dma_copy(dst=out[0:64, :], src=a[0:64, :])
    return out


@hole("output-not-written")
def a_loop_that_ends_early(a, b):
    out = shared((128, 64))  # here

    def copied(row):
        nl.store(out[nl.ds(row, 16), :], nl.load(a[nl.ds(row, 16), :]))

    nl.fori_loop(0, 112, copied, 16)
    return out


@hole("output-not-written", cores=2)
def cores_that_write_the_same_half(a, b):
    out = shared((128, 64))  # here
    nl.store(out[0:64, :], nl.load(a[0:64, :]))
    return out


# Places that only a run knows


@hole("dynamic-out-of-bounds")
def a_row_behind_the_last(a, b):
    x = tile((16, 64))
    nisa.dma_copy(dst=x, src=a[nl.ds(register_of(113), 16), :])  # here
    return result(x)


@hole("dynamic-out-of-bounds")
def a_row_before_the_first(a, b):
    x = tile((16, 64))
    nisa.dma_copy(dst=x, src=a[nl.ds(register_of(-1), 16), :])  # here
    return result(x)


@hole("dynamic-out-of-bounds")
def a_column_behind_the_last(a, b):
    x, z = nl.load(a), tile((128, 8))
    nisa.tensor_copy(dst=z, src=x[:, nl.ds(register_of(60), 8)])  # here
    return result(z)


@hole("dynamic-out-of-bounds")
def an_index_behind_the_last(a, b):
    rows, x = tile((32, 1), nl.int32), tile((32, 64))
    nisa.iota(dst=rows, pattern=[[1, 1]], offset=97, channel_multiplier=1)
    nisa.dma_copy(dst=x, src=a.vector_select(0, rows))  # here
    return result(x)


# Tensors at addresses


@hole("address-overlap")
def sums_at_one_address(a, b):
    one = tile((64, 128), buffer=nl.psum, address=(0, 0))
    other = tile((64, 128), buffer=nl.psum, address=(0, 256))  # here
    left, right, z = nl.load(a[0:64, :]), nl.load(b), tile((64, 128))
    nisa.nc_matmul(dst=one, stationary=left, moving=right)
    nisa.nc_matmul(dst=other, stationary=left, moving=right)
    nisa.tensor_copy(dst=z, src=one)
    nisa.tensor_tensor(dst=z, data1=z, data2=other, op=nl.add)
    return result(z)


# Cores


@hole("race", cores=2)
def no_barrier(a, b):
    core, held, out = nl.program_id(0), shared((128, 64)), shared((128, 64))
    mine, other = nl.ds(core * 64, 64), nl.ds((1 - core) * 64, 64)
    nl.store(held[mine, :], nl.load(a[mine, :]))
    nl.store(out[other, :], nl.load(held[other, :]))  # here
    return out


@hole("race", cores=2)
def zeros_from_both_cores(a, b):
    core, out, x = nl.program_id(0), shared((128, 64)), tile((128, 64))
    nisa.memset(dst=x, value=0.0)
    if core == 0:
        nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=2.0)
    nl.store(out, x)  # here
    return out


@hole("race", cores=2)
def one_row_of_both_cores(a, b):
    core, out = nl.program_id(0), shared((128, 64))
    rows = nl.ds(core * 63, 65)
    x = nl.load(a[rows, :])
    nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=float(core))
    nl.store(out[rows, :], x)  # here
    return out


@hole("race", cores=2)
def a_write_behind_a_read(a, b):
    core, held, out = nl.program_id(0), shared((128, 64)), shared((128, 64))
    if core == 0:
        nl.store(held, nl.load(a))
    nisa.core_barrier(held, (0, 1))
    x = nl.load(held[nl.ds(core * 64, 64), :])
    if core == 1:
        nl.store(held[0:1, :], x[0:1, :])  # here
    nl.store(out[nl.ds(core * 64, 64), :], x)
    return out


@hole("race", cores=2)
def a_buffer_of_all_iterations(a, b):
    """The next iteration of core 0 writes while core 1 may still read."""
    core, held, out = nl.program_id(0), shared((16, 64)), shared((2, 64, 64))

    def step(row):
        if core == 0:
            nl.store(held, nl.load(a[nl.ds(row, 16), :]))  # here
        nisa.core_barrier(held, (0, 1))
        nl.store(out[core, nl.ds(row, 16), :], nl.load(held))

    nl.fori_loop(0, 64, step, 16)
    return out


@hole("deadlock", cores=2)
def a_barrier_of_one_core(a, b):
    core, out = nl.program_id(0), shared((128, 64))
    mine = nl.ds(core * 64, 64)
    nl.store(out[mine, :], nl.load(a[mine, :]))
    if core == 0:
        nisa.core_barrier(out, (0, 1))  # here
    return out
