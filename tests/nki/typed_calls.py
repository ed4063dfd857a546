"""Calls that a type checker accepts, and calls that it reports: the lines with `# wrong`.

`test_stubs` checks both, and that the device agrees: the kernel of right calls is traced, each
wrong call is refused when a kernel makes it. All that a call needs is defined in front.
"""

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def right_calls(a: nl.NkiTensor) -> nl.NkiTensor:
    """Forty calls."""
    x, y = nl.load(a), nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    column = nl.ndarray((a.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
    half = nl.load(a, dtype=nl.bfloat16)
    product = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
    out = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    whole = nl.zeros((128, 128), dtype=nl.int32)
    register = nisa.register_alloc(0)
    nisa.memset(dst=column, value=0.5)
    nisa.memset(y, np.float32(1))
    nisa.memset(whole, 3)
    nisa.iota(dst=whole, pattern=[[1, 128]], offset=0, channel_multiplier=1)
    nisa.tensor_copy(dst=y, src=x)
    nisa.tensor_copy(y, x, engine=nisa.engine.vector, name="copy")
    nisa.tensor_tensor(dst=y, data1=x, data2=x, op=nl.add)
    nisa.tensor_tensor(y, x, y, nl.maximum, engine=nisa.engine.gpsimd)
    nisa.tensor_tensor(dst=whole, data1=whole, data2=whole, op=nl.bitwise_and)
    nisa.tensor_scalar(dst=y, data=x, op0=nl.multiply, operand0=2.0)
    nisa.tensor_scalar(y, x, nl.subtract, column, reverse0=True, op1=nl.multiply, operand1=3)
    nisa.scalar_tensor_tensor(y, x, nl.multiply, column, nl.add, y)
    nisa.tensor_reduce(dst=column, op=nl.add, data=x, axis=1)
    nisa.tensor_reduce(dst=column, op=nl.max, data=x, axis=(1,))
    nisa.activation(dst=y, op=nl.exp, data=x, scale=0.5)
    nisa.activation(dst=y, op=nl.gelu, data=x, bias=column, name=None)
    nisa.reciprocal(dst=y, data=y)
    nisa.nc_transpose(dst=nl.ndarray((128, 128), nl.bfloat16, nl.psum), data=half)
    nisa.nc_matmul(dst=product, stationary=half, moving=half)
    nisa.nc_matmul(product, half, half, accumulate=True)
    nisa.dma_copy(dst=y, src=a)
    nisa.dma_copy(out, y, dge_mode=nisa.dge_mode.hwdge).depends_on()
    nisa.dma_copy(dst=y[0:64, :], src=a[64:128, :])
    nisa.dma_compute(dst=out, srcs=[out, y], reduce_op=nl.add)
    nisa.register_move(register, 4)
    y = nl.exp(x)
    y = nl.add(x, 1.0, dtype=nl.float32)
    y = nl.where(nl.greater(x, y), x, y)
    y = nl.sum(x, axis=1, keepdims=True)
    y = nl.softmax(x, axis=-1, dtype="float32")
    y = nl.copy(x, dtype=np.float32)
    y = nl.full((128, 4), 2.5, dtype=nl.float16, buffer=nl.sbuf, name="filled")
    y = x.reshape((128, 2, 64)).permute((0, 2, 1)).view(nl.uint32)
    y = nl.matmul(half, half, transpose_x=True)
    y = x[:, nl.ds(8, 16)].slice(1, 0, 4, step=2)
    for tile in nl.affine_range(2):
        nl.store(out[:, nl.ds(tile * 64, 64)], x[:, nl.ds(tile * 64, 64)])
    nl.device_print("sizes", x)
    size: int = nl.tile_size.pmax + nl.num_programs(0) + nl.program_id(axis=0)
    assert nisa.get_nc_version() >= nisa.nc_version.gen2 and nl.is_sbuf(x.buffer) and size
    nki.simulate(right_calls, mode="device", backend="native")
    nki.TensorSpec((nki.symbol("rows", max=512, multiple_of=128), 128), nl.float32)
    nki.jit(target="trn2")(right_calls.func).with_schedule([("copy", "copy2")])
    return out


@nki.jit
def wrong_calls(a: nl.NkiTensor, given: dict[str, int]) -> None:
    """Forty calls, each of which is refused."""
    x, y = nl.load(a), nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    column = nl.ndarray((a.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
    register = nisa.register_alloc(0)
    nisa.tensor_tensr(dst=y, data1=x, data2=x, op=nl.add)  # wrong
    nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand=2.0)  # wrong
    nisa.tensor_tensor(dst=y, data1=x, op=nl.add)  # wrong
    nisa.tensor_tensor(dst=y, data1=x, data2=2.0, op=nl.add)  # wrong
    nisa.tensor_tensor(dst=y, data1=x, data2=x, op="add")  # wrong
    nisa.tensor_tensor(dst=y, data1=x, data2=x, op=nl.exp)  # wrong
    nisa.tensor_tensor(dst=y, data1=x, data2=x, op=np.add)  # wrong
    nisa.tensor_tensor(y, x, x, nl.add, engine=nl.sbuf)  # wrong
    nisa.tensor_tensor(y, x, x, nl.add, engine="vector engine")  # wrong
    nisa.tensor_tensor(y, x, x, nl.add, nisa.engine.vector, "name", 1)  # wrong
    nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0="2")  # wrong
    nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=column, reverse0=None)  # wrong
    nisa.tensor_copy(x)  # wrong
    nisa.tensor_copy(dst=y, src=[x])  # wrong
    nisa.tensor_copy(dst=y, src=x, engine=nisa.engine.vectr)  # wrong
    nisa.tensor_reduce(dst=column, op=nl.add, data=x, axis="free")  # wrong
    nisa.activation(dst=y, op=nl.add, data=x)  # wrong
    nisa.activation(dst=y, op="exp", data=x)  # wrong
    nisa.activation(dst=y, op=nl.exp, data=x, scale="0.5")  # wrong
    nisa.nc_matmul(dst=y, stationary=x, moving=x, accumulate="yes")  # wrong
    nisa.nc_matmul(dst=y, stationary=x)  # wrong
    nisa.nc_matmul(dst=y, lhs=x, rhs=x)  # wrong
    nisa.memset(dst=column, value="0")  # wrong
    nisa.memset(column)  # wrong
    nisa.iota(dst=y, pattern=3)  # wrong
    nisa.dma_copy(src=a)  # wrong
    nisa.dma_copy(dst=y, src=a, dge_mode="fast")  # wrong
    nisa.dma_compute(dst=y, srcs=x, reduce_op=nl.add)  # wrong
    nisa.register_move(3, register)  # wrong
    nl.ndarray((128, 4), dtype=nl.float23, buffer=nl.sbuf)  # wrong
    nl.ndarray((128, 4), dtype=32, buffer=nl.sbuf)  # wrong
    nl.ndarray((128, 4), dtype=nl.float32, buffer=3)  # wrong
    nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.sbuff)  # wrong
    nl.ndarray((128, 4), dtype=nl.float32, memory=nl.sbuf)  # wrong
    nl.add(x)  # wrong
    nl.exp("x")  # wrong
    nl.bypass(x)  # wrong
    x.reshap((128, 2, 64))  # wrong
    x + y  # wrong
    nki.symbol("rows", maximum=512)  # wrong
