"""Kernels with one bottleneck each, known because it was planted, and the same kernels without it.

A line whose comment is `planted` is the bottleneck's. `PLANTED` has what the verdict must call it,
the kernels before and after, and their inputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl

F32, BF16 = nl.float32, nl.bfloat16


def tile(columns, dtype=F32, partitions=128, buffer=nl.sbuf):
    return nl.ndarray((partitions, columns), dtype=dtype, buffer=buffer)


def result(shape, dtype=F32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


# Short descriptors: columns of a row-major tensor, 4 bytes at a time.


@nki.jit
def columns_loaded(a):
    rows, columns = a.shape
    out = result((columns, rows))
    for start in range(0, columns, 128):
        x = tile(rows)
        nisa.dma_copy(dst=x, src=a.ap(pattern=[[1, 128], [columns, rows]], offset=start))  # planted
        nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[start : start + 128, :], src=x)
    return out


@nki.jit
def rows_loaded(a):
    columns, rows = a.shape
    out = result((columns, rows))
    for start in range(0, columns, 128):
        x = tile(rows)
        nisa.dma_copy(dst=x, src=a[start : start + 128, :])
        nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[start : start + 128, :], src=x)
    return out


# Tables of ScalarE that take turns.


def _functions(a, one, other):
    x = nl.load(a)
    for _ in range(12):
        nisa.activation(dst=x, op=one, data=x)
        nisa.activation(dst=x, op=other, data=x)  # planted
    out = result(a.shape)
    nl.store(out, x)
    return out


@nki.jit
def tables_in_turn(a):
    return _functions(a, nl.gelu, nl.silu)


@nki.jit
def tables_once(a):
    return _functions(a, nl.gelu, nl.gelu_apprx_tanh)


# One engine that does everything.


def _halves(a, engine):
    out = result(a.shape)
    x = nl.load(a)
    for start in range(0, a.shape[1], 512):
        part, y = x[:, start : start + 512], tile(512)
        for _ in range(4):
            nisa.tensor_tensor(dst=part, data1=part, data2=part, op=nl.multiply)
        for _ in range(8):
            nisa.tensor_copy(dst=y[:, ::2], src=part[:, ::2], engine=engine)  # planted
        nisa.tensor_tensor(dst=part, data1=part, data2=y, op=nl.add)
    nl.store(out, x)
    return out


@nki.jit
def all_on_vector(a):
    return _halves(a, nisa.engine.vector)


@nki.jit
def one_on_scalar(a):
    return _halves(a, nisa.engine.scalar)


# The port that VectorE in its fast modes shares with GpSimd.


def _copies(a, engine):
    x = nl.load(a)
    out, indices = result(a.shape, BF16), result((128, 512), nl.int32)
    y, z = tile(a.shape[1], BF16), tile(a.shape[1], BF16)
    for start in range(0, a.shape[1], 512):
        here = slice(start, start + 512)
        nisa.tensor_copy(dst=y[:, here], src=x[:, here], engine=nisa.engine.vector)
        nisa.tensor_copy(dst=z[:, here], src=x[:, here], engine=engine)  # planted
    nl.store(out, y)
    nl.store(out, z)
    return out, indices


@nki.jit
def port_shared(a):
    return _copies(a, nisa.engine.gpsimd)


@nki.jit
def port_alone(a):
    return _copies(a, nisa.engine.scalar)


# A chain of short instructions, each of which needs the one before.


@nki.jit
def one_chain(a):
    x = nl.load(a)
    total = tile(1)
    nisa.memset(dst=total, value=0.0)
    for column in range(a.shape[1]):
        new = x[:, column : column + 1]
        nisa.tensor_tensor(dst=total, data1=total, data2=new, op=nl.add)  # planted
    out = result((128, 1))
    nl.store(out, total)
    return out


@nki.jit
def four_chains(a):
    x = nl.load(a)
    total = tile(4)
    nisa.memset(dst=total, value=0.0)
    for column in range(a.shape[1]):
        part = total[:, column % 4 : column % 4 + 1]
        nisa.tensor_tensor(dst=part, data1=part, data2=x[:, column : column + 1], op=nl.add)
    out, whole = result((128, 1)), tile(1)
    nisa.tensor_reduce(dst=whole, op=nl.add, data=total, axis=1)
    nl.store(out, whole)
    return out


# The load that everything needs first is started last.


def _late(a, weights, late):
    out = result(a.shape)
    sums, ones = tile(1), tile(1)
    nisa.memset(dst=sums, value=0.0)
    nisa.memset(dst=ones, value=1.0)
    if not late:
        x = nl.load(a)
    for number in range(weights.shape[0] // 128):
        w, total = tile(weights.shape[1]), tile(1)
        nisa.dma_copy(dst=w, src=weights[nl.ds(128 * number, 128), :])
        nisa.tensor_reduce(dst=total, op=nl.add, data=w, axis=1)
        for _ in range(4):
            nisa.tensor_tensor(dst=total, data1=total, data2=ones, op=nl.add)
        nisa.tensor_tensor(dst=sums, data1=sums, data2=total, op=nl.add)
    if late:
        x = nl.load(a)  # planted
    for _ in range(24):
        nisa.activation(dst=x, op=nl.exp, data=x)
    nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=sums)
    nl.store(out, x)
    return out


@nki.jit
def late_load(a, weights):
    return _late(a, weights, True)


@nki.jit
def early_load(a, weights):
    return _late(a, weights, False)


# A short chain that goes from engine to engine and back.


def _turns(a, engine):
    x = nl.load(a)
    for _ in range(24):
        nisa.tensor_tensor(dst=x, data1=x, data2=x, op=nl.add, engine=nisa.engine.vector)
        nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=0.5, engine=engine)  # planted
    out = result(a.shape)
    nl.store(out, x)
    return out


@nki.jit
def ping_pong(a):
    return _turns(a, nisa.engine.scalar)


@nki.jit
def one_engine(a):
    return _turns(a, nisa.engine.vector)


# Products of fp32, which take four passes.


@nki.jit
def product(lhsT, rhs):
    depth, rows = lhsT.shape
    out = result((rows, rhs.shape[1]))
    parts = [nl.ds(part, 512) for part in range(0, rhs.shape[1], 512)]
    sums = [tile(512, F32, buffer=nl.psum) for _ in parts]
    for start in range(0, depth, 128):
        here = slice(start, start + 128)
        left, right = tile(rows, lhsT.dtype), tile(rhs.shape[1], rhs.dtype)
        nisa.dma_copy(dst=left, src=lhsT[here, :])
        nisa.dma_copy(dst=right, src=rhs[here, :])
        for part, total in zip(parts, sums):
            nisa.nc_matmul(dst=total, stationary=left, moving=right[:, part])  # planted
    y = tile(rhs.shape[1])
    for part, total in zip(parts, sums):
        nisa.tensor_copy(dst=y[:, part], src=total)
    nisa.dma_copy(dst=out, src=y)
    return out


# A load that does not depend on the loop around it.


def _weighted(a, weights, hoisted):
    out = result(a.shape)
    if hoisted:
        w = nl.load(weights)
    for start in range(0, a.shape[0], 128):
        x = tile(a.shape[1])
        nisa.dma_copy(dst=x, src=a[start : start + 128, :])
        if not hoisted:
            w = nl.load(weights)  # planted
        for part in range(0, weights.shape[1], a.shape[1]):
            nisa.tensor_tensor(dst=x, data1=x, data2=w[:, part : part + a.shape[1]], op=nl.multiply)
        nisa.dma_copy(dst=out[start : start + 128, :], src=x)
    return out


@nki.jit
def loaded_each_time(a, weights):
    return _weighted(a, weights, False)


@nki.jit
def loaded_once(a, weights):
    return _weighted(a, weights, True)


# One buffer for all iterations.


def _buffers(a, single):
    out = result(a.shape)
    if single:
        x = tile(a.shape[1])
    for start in range(0, a.shape[0], 128):
        if not single:
            x = tile(a.shape[1])
        nisa.dma_copy(dst=x, src=a[start : start + 128, :])  # planted
        nisa.activation(dst=x, op=nl.exp, data=x)
        nisa.dma_copy(dst=out[start : start + 128, :], src=x)
    return out


@nki.jit
def one_buffer(a):
    return _buffers(a, True)


@nki.jit
def several_buffers(a):
    return _buffers(a, False)


# Many small transfers, whose triggers one engine writes.


def _pieces(a, width):
    out = result((128, 1))
    total = tile(1)
    x = tile(a.shape[1])
    on = {"dge_mode": nisa.dge_mode.hwdge, "engine": nisa.engine.sync}
    for start in range(0, a.shape[1], width):
        here = slice(start, start + width)
        nisa.dma_copy(dst=x[:, here], src=a[:, here], **on)  # planted
    nisa.tensor_reduce(dst=total, op=nl.add, data=x, axis=1)
    nl.store(out, total)
    return out


@nki.jit
def small_transfers(a):
    return _pieces(a, 32)


@nki.jit
def large_transfers(a):
    return _pieces(a, 1024)


# Few partitions.


def _on(a, partitions):
    out = result(a.shape)
    x = tile(a.shape[1], partitions=partitions)
    nisa.dma_copy(dst=x, src=a)
    for _ in range(8):
        nisa.activation(dst=x, op=nl.exp, data=x)  # planted
    nisa.dma_copy(dst=out, src=x)
    return out


@nki.jit
def few_partitions(a):
    return _on(a, 8)


@nki.jit
def all_partitions(a):
    return _on(a, 128)


# Copies out of PSUM by an engine that has other work.


def _evacuated(a, b, engine):
    out, left, right = result((128, b.shape[1])), nl.load(a), nl.load(b)
    for start in range(0, b.shape[1], 512):
        bank, copy = tile(512, buffer=nl.psum), tile(512)
        nisa.nc_matmul(dst=bank, stationary=left, moving=right[:, start : start + 512])
        nisa.tensor_copy(dst=copy, src=bank, engine=engine)  # planted
        nisa.tensor_scalar(dst=copy, data=copy, op0=nl.minimum, operand0=1.5)
        nisa.tensor_reduce(dst=copy[:, :1], op=nl.add, data=copy, axis=1)
        nisa.dma_copy(dst=out[:, start : start + 512], src=copy)
    return out


@nki.jit
def evacuated_by_vector(a, b):
    return _evacuated(a, b, nisa.engine.vector)


@nki.jit
def evacuated_by_scalar(a, b):
    return _evacuated(a, b, nisa.engine.scalar)


# A second load of what is on chip.


def _less_largest(a, again):
    out = result(a.shape)
    for start in range(0, a.shape[0], 128):
        x, largest = nl.load(a[start : start + 128, :]), tile(1)
        nisa.tensor_reduce(dst=largest, op=nl.maximum, data=x, axis=1)
        if again:
            x = nl.load(a[start : start + 128, :])  # planted
        nisa.tensor_scalar(dst=x, data=x, op0=nl.subtract, operand0=largest)
        nisa.dma_copy(dst=out[start : start + 128, :], src=x)
    return out


@nki.jit
def loaded_twice(a):
    return _less_largest(a, True)


@nki.jit
def loaded_and_kept(a):
    return _less_largest(a, False)


@dataclass(frozen=True)
class Planted:
    """A bottleneck: what it is called, the kernels with and without it, shapes of their inputs."""

    name: str
    bottleneck: str
    before: Any
    after: Any
    shapes: tuple[Any, ...]
    shapes_after: tuple[Any, ...] = ()

    def compiled(self, after: bool = False) -> Any:
        shapes = (self.shapes_after or self.shapes) if after else self.shapes
        return nki.compile(self.after if after else self.before, *shapes, target="trn2")

    @property
    def line(self) -> int:
        """The line that was planted."""
        module = inspect.getsource(inspect.getmodule(self.before.function)).splitlines()
        first = inspect.getsourcelines(_body(self.before.function))[1]
        return next(n for n, text in enumerate(module, 1) if n >= first and "# planted" in text)


def _body(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a kernel's lines are in: a helper that it only calls, or itself."""
    names = [name for name in function.__code__.co_names if name.startswith("_")]
    return globals()[names[0]] if names else function


def half(*shape):
    return nki.TensorSpec(shape, BF16)


def single(*shape):
    return nki.TensorSpec(shape, F32)


PLANTED = (
    Planted("descriptors", "short descriptors", columns_loaded, rows_loaded,
            (single(256, 512),), (single(512, 256),)),
    Planted("tables", "table switches", tables_in_turn, tables_once, (single(128, 1024),)),
    Planted("engine", "overloaded engine", all_on_vector, one_on_scalar, (single(128, 4096),)),
    Planted("port", "shared port", port_shared, port_alone, (half(128, 16384),)),
    Planted("chain", "dependent chain", one_chain, four_chains, (single(128, 256),)),
    Planted("late", "late load", late_load, early_load, (single(128, 1024), single(2560, 2048))),
    Planted("ping-pong", "ping-pong between engines", ping_pong, one_engine, (single(128, 64),)),
    Planted("operands", "32-bit operands", product, product,
            (single(2048, 128), single(2048, 2048)), (half(2048, 128), half(2048, 2048))),
    Planted("hoistable", "hoistable load", loaded_each_time, loaded_once,
            (single(1024, 512), single(128, 2048))),
    Planted("buffer", "one buffer", one_buffer, several_buffers, (single(2048, 1024),)),
    Planted("triggers", "small transfers", small_transfers, large_transfers, (single(128, 4096),)),
    Planted("partitions", "few partitions", few_partitions, all_partitions,
            (single(8, 8192),), (single(128, 512),)),
    Planted("evacuation", "overloaded engine", evacuated_by_vector, evacuated_by_scalar,
            (half(128, 128), half(128, 8192))),
    Planted("repeated", "repeated load", loaded_twice, loaded_and_kept, (single(512, 1024),)),
)  # fmt: skip
