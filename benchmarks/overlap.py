"""Modelled times of kernels whose iterations should overlap, straight and rolled.

Run: python benchmarks/overlap.py [TARGET] [NAME...]

Times are those of the event model in microseconds, for one core. "x" compares a rolled kernel with
the same one unrolled by Python. "before" is what it took on trn2 with one copy of the buffers of
loops over ints and two of those over symbols, with places that follow the author's order, and with
all loads started by the sync engine.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import nki
import nki.isa as nisa
import nki.language as nl
from isa.binding import bind
from simulator.timing import simulate

P = 128
BANK = 512


def chip(shape, dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def tiles(rows, rolled: bool, together: int = 1) -> Iterator[Callable[..., Any]]:
    """Of each tile of rows the function that views it in a tensor: of a Python loop, or of a loop
    on the device that has `together` tiles in its body. Over a launch symbol the loop is rolled
    anyway."""

    def within(first, tile, length=P):
        def view(tensor, axis=0):
            block, part = [slice(None)] * len(tensor.shape), [slice(None)] * len(tensor.shape)
            block[axis], part[axis] = nl.ds(first, length), nl.ds(tile * P, P)
            return tensor[tuple(block)][tuple(part)]

        return view

    if not isinstance(rows, int):
        for tile in nl.affine_range(rows // P):
            yield within(tile * P, 0)
    elif rolled:
        for first in nl.dynamic_range(0, rows, together * P):
            for tile in range(together):
                yield within(first, tile, together * P)
    else:
        for first in range(0, rows, P):
            yield within(first, 0)


@nki.jit
def softmax(a, rolled=False, together=1):
    columns = a.shape[1]
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for here in tiles(a.shape[0], rolled, together):
        x, e, y = (chip((P, columns), a.dtype) for _ in range(3))
        low, total, inverse = (chip((P, 1)) for _ in range(3))
        nisa.dma_copy(dst=x, src=here(a))
        nisa.tensor_reduce(dst=low, op=nl.maximum, data=x, axis=1, negate=True)
        nisa.activation_reduce(
            dst=e, op=nl.exp, data=x, reduce_op=nl.add, reduce_res=total, bias=low
        )
        nisa.reciprocal(dst=inverse, data=total)
        nisa.tensor_scalar(dst=y, data=e, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=here(out), src=y)
    return out


@nki.jit
def streamed(a, rolled=False):
    """Load, compute, store."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for here in tiles(a.shape[0], rolled):
        x, y = (chip((P, a.shape[1]), a.dtype) for _ in range(2))
        nisa.dma_copy(dst=x, src=here(a))
        nisa.activation(dst=y, op=nl.exp, data=x)
        nisa.dma_copy(dst=here(out), src=y)
    return out


@nki.jit
def summed(a, rolled=False):
    """Sums of small blocks, each of which is loaded by a transfer of its own."""
    rows, columns = a.shape
    out = nl.ndarray((rows, BANK // 4), dtype=a.dtype, buffer=nl.shared_hbm)
    for here in tiles(rows, rolled):
        total = chip((P, BANK // 4))
        nisa.memset(dst=total, value=0.0)
        for start in range(0, columns, BANK // 4):
            block = chip((P, BANK // 4), a.dtype)
            nisa.dma_copy(dst=block, src=here(a)[:, nl.ds(start, BANK // 4)])
            nisa.tensor_tensor(dst=total, data1=total, data2=block, op=nl.add)
        result = chip((P, BANK // 4), a.dtype)
        nisa.tensor_copy(dst=result, src=total)
        nisa.dma_copy(dst=here(out), src=result)
    return out


REGIONS = 40


@nki.jit
def regions(a, rolled=False, together=1):
    """Small element-wise regions, each of which reads from HBM what the one before has written."""
    for _ in range(REGIONS):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for here in tiles(a.shape[0], rolled, together):
            x, y = (chip((P, a.shape[1]), a.dtype) for _ in range(2))
            nisa.dma_copy(dst=x, src=here(a))
            nisa.tensor_scalar(dst=y, data=x, op0=nl.multiply, operand0=0.5)
            nisa.dma_copy(dst=here(out), src=y)
        a = out
    return out


@nki.jit
def attention(q, k, v, rolled=False):
    """softmax(q.T @ k / sqrt(d)) @ v with each row's true maximum, one tile of queries after the
    other; q and k are [d, S], v is [S, d]."""
    d, length = q.shape
    scale = d**-0.5
    out = nl.ndarray((length, d), dtype=q.dtype, buffer=nl.shared_hbm)
    keys = chip((d, length), k.dtype)
    nisa.dma_copy(dst=keys, src=k)
    values = chip((P, length // P, d), v.dtype)
    for block in range(length // P):
        nisa.dma_copy(dst=values[:, block, :], src=v[nl.ds(block * P, P), :])
    for here in tiles(length, rolled):
        query = chip((d, P), q.dtype)
        nisa.dma_copy(dst=query, src=here(q, 1))
        scores = chip((P, length), q.dtype)
        largest = chip((P, length // BANK))
        for j in range(length // BANK):
            product = chip((P, BANK), buffer=nl.psum)
            nisa.nc_matmul(dst=product, stationary=query, moving=keys[:, nl.ds(j * BANK, BANK)])
            nisa.tensor_reduce(dst=largest[:, nl.ds(j, 1)], op=nl.maximum, data=product, axis=1)
            here_too = scores[:, nl.ds(j * BANK, BANK)]
            nisa.tensor_copy(dst=here_too, src=product, engine=nisa.engine.scalar)
        low, total = chip((P, 1)), chip((P, 1))
        nisa.tensor_reduce(dst=low, op=nl.maximum, data=largest, axis=1)
        nisa.tensor_scalar(dst=low, data=low, op0=nl.multiply, operand0=-scale)
        weights = chip((P, length), q.dtype)
        nisa.activation_reduce(
            dst=weights,
            op=nl.exp,
            data=scores,
            scale=scale,
            bias=low,
            reduce_op=nl.add,
            reduce_res=total,
        )
        result = chip((P, d), buffer=nl.psum)
        for group in range(length // (8 * P)):
            turned = chip((P, 8, P), q.dtype, nl.psum)
            stationary = chip((P, 8, P), q.dtype)
            for t in range(8):
                nisa.nc_transpose(
                    dst=turned[:, t, :], data=weights[:, nl.ds((group * 8 + t) * P, P)]
                )
            nisa.tensor_copy(dst=stationary, src=turned)
            for t in range(8):
                nisa.nc_matmul(
                    dst=result, stationary=stationary[:, t, :], moving=values[:, group * 8 + t, :]
                )
        inverse, final = chip((P, 1)), chip((P, d), q.dtype)
        nisa.reciprocal(dst=inverse, data=total)
        nisa.tensor_scalar(dst=final, data=result, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=here(out), src=final)
    return out


WIDTH, HEADS, HIDDEN = 768, 12, 3072
BLOCKS = WIDTH // P
LAYERS = 12


def turned_blocks(x):
    """[P, n * P] to [P, n, P], each block transposed."""
    count = x.shape[1] // P
    result = chip((P, count, P), x.dtype)
    for block in range(count):
        turned = chip((P, P), x.dtype, nl.psum)
        nisa.nc_transpose(dst=turned, data=x[:, nl.ds(block * P, P)])
        nisa.tensor_copy(dst=result[:, block, :], src=turned)
    return result


def normalised(x):
    squares, total, y = chip((P, WIDTH)), chip((P, 1)), chip((P, WIDTH), nl.bfloat16)
    nisa.activation_reduce(dst=squares, op=nl.square, data=x, reduce_op=nl.add, reduce_res=total)
    nisa.tensor_scalar(
        dst=total, data=total, op0=nl.multiply, operand0=1 / WIDTH, op1=nl.add, operand1=1e-6
    )
    nisa.tensor_scalar(dst=total, data=total, op0=nl.power, operand0=-0.5)
    nisa.tensor_scalar(dst=y, data=x, op0=nl.multiply, operand0=total)
    return y


def product(stationary, weights, start, columns):
    """The columns from `start` on of a product that sums over all blocks, in PSUM."""
    result = chip((P, columns), buffer=nl.psum)
    for block in range(stationary.shape[1]):
        nisa.nc_matmul(
            dst=result,
            stationary=stationary[:, block, :],
            moving=weights[:, block, nl.ds(start, columns)],
        )
    return result


def linear(y, weights, op):
    """op(y @ weights), where `y` is [P, n * P] and the weights are [P, n, columns]."""
    columns = weights.shape[2]
    stationary = turned_blocks(y)
    result = chip((P, columns), nl.bfloat16)
    width = next(n for n in (512, 384) if columns % n == 0)
    for start in range(0, columns, width):
        total = product(stationary, weights, start, width)
        nisa.activation(dst=result[:, nl.ds(start, width)], op=op, data=total)
    return result


def heads(qkv):
    """Attention of all heads: [P, 3 * WIDTH] to [P, WIDTH]."""
    size = WIDTH // HEADS
    result = chip((P, WIDTH), nl.bfloat16)
    for head in range(HEADS):
        turned = chip((size, 2, P), nl.bfloat16, nl.psum)
        both = chip((size, 2, P), nl.bfloat16)
        for part in range(2):
            piece = qkv[:, nl.ds(part * WIDTH + head * size, size)]
            nisa.nc_transpose(dst=turned[:, part, :], data=piece)
        nisa.tensor_copy(dst=both, src=turned)
        scores = chip((P, P), buffer=nl.psum)
        nisa.nc_matmul(dst=scores, stationary=both[:, 0, :], moving=both[:, 1, :])
        low, total, weights = chip((P, 1)), chip((P, 1)), chip((P, P), nl.bfloat16)
        nisa.tensor_reduce(dst=low, op=nl.maximum, data=scores, axis=1, negate=True)
        nisa.activation_reduce(
            dst=weights, op=nl.exp, data=scores, bias=low, reduce_op=nl.add, reduce_res=total
        )
        summed = chip((P, size), buffer=nl.psum)
        stationary = turned_blocks(weights)
        value = qkv[:, nl.ds(2 * WIDTH + head * size, size)]
        nisa.nc_matmul(dst=summed, stationary=stationary[:, 0, :], moving=value)
        nisa.reciprocal(dst=total, data=total)
        here = result[:, nl.ds(head * size, size)]
        nisa.tensor_scalar(dst=here, data=summed, op0=nl.multiply, operand0=total)
    return result


def through_layer(state, views):
    """A transformer layer on a state in SBUF; `views` are its weights, [P, rows / P, columns]."""
    weights = []
    for view in views:
        weights.append(chip(view.shape, view.dtype))
        nisa.dma_copy(dst=weights[-1], src=view)
    mixed = heads(linear(normalised(state), weights[0], nl.copy))
    added = linear(mixed, weights[1], nl.copy)
    nisa.tensor_tensor(dst=state, data1=state, data2=added, op=nl.add)
    wide = linear(normalised(state), weights[2], nl.gelu_apprx_tanh)
    added = linear(wide, weights[3], nl.copy)
    nisa.tensor_tensor(dst=state, data1=state, data2=added, op=nl.add)


@nki.jit
def layers(x, qkv, narrow, up, down, rolled=False):
    """Transformer layers over 128 tokens; weights are [LAYERS * P, rows / P, columns]."""
    state = chip((P, WIDTH))
    nisa.dma_copy(dst=state, src=x)
    for here in tiles(LAYERS * P, rolled):
        through_layer(state, [here(weights) for weights in (qkv, narrow, up, down)])
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=state)
    return out


class Case(NamedTuple):
    """A kernel with its arguments; rolled ones name the case that they are compared with."""

    kernel: Any
    arguments: tuple[Any, ...]
    peer: str = ""
    symbols: tuple[tuple[str, int], ...] = ()
    before: float = 0.0


def spec(*shape, dtype=nl.bfloat16):
    return nki.TensorSpec(shape, dtype)


def cases() -> dict[str, Case]:
    square = spec(4096, 4096)
    rows = nki.symbol("M", max=8192, multiple_of=P)
    small = spec(2048, 512)
    heads_of = spec(P, 4096), spec(P, 4096), spec(4096, P)
    stacked = [
        spec(LAYERS * P, inner // P, columns)
        for inner, columns in (
            (WIDTH, 3 * WIDTH),
            (WIDTH, WIDTH),
            (WIDTH, HIDDEN),
            (HIDDEN, WIDTH),
        )
    ]
    tokens = spec(P, WIDTH, dtype=nl.float32)
    streams = spec(64 * P, 2048)
    return {
        "softmax": Case(softmax, (square,), before=194.2),
        "softmax, rolled": Case(softmax, (square, True), "softmax", before=429.9),
        "softmax, rolled by 4": Case(softmax, (square, True, 4), "softmax", before=200.6),
        "softmax, symbol": Case(softmax, (spec(rows, 4096),), "softmax", (("M", 4096),), 240.8),
        "streamed": Case(streamed, (streams,), before=204.7),
        "streamed, rolled": Case(streamed, (streams, True), "streamed", before=451.2),
        "streamed, symbol": Case(
            streamed, (spec(rows, 2048),), "streamed", (("M", 64 * P),), 230.5
        ),
        "summed": Case(summed, (spec(64 * P, 1024),), before=147.1),
        "summed, rolled": Case(summed, (spec(64 * P, 1024), True), "summed", before=315.6),
        "regions": Case(regions, (small,), before=667.2),
        "regions, rolled": Case(regions, (small, True), "regions", before=2102.0),
        "regions, rolled by 4": Case(regions, (small, True, 4), "regions", before=794.7),
        "regions, rolled by 8": Case(regions, (small, True, 8), "regions", before=763.4),
        "attention": Case(attention, heads_of, before=499.3),
        "attention, rolled": Case(attention, (*heads_of, True), "attention", before=481.9),
        "layers": Case(layers, (tokens, *stacked), before=629.8),
        "layers, rolled": Case(layers, (tokens, *stacked, True), "layers", before=629.9),
    }


def main() -> None:
    arguments = sys.argv[1:]
    target = next((one for one in arguments if one.startswith("trn")), "trn2")
    names = [one for one in arguments if one != target]
    print(f"{target:24}{'us':>9}{'x':>7}{'before':>9}{'instructions':>14}{'compile s':>11}")
    known: dict[str, float] = {}
    for name, case in cases().items():
        if names and not any(name.startswith(one) for one in names):
            continue
        start = time.perf_counter()
        program = nki.compile(case.kernel, *case.arguments, target=target).program
        seconds = time.perf_counter() - start
        timeline = simulate(bind(program, dict(case.symbols)), keep_spans=False)
        known[name] = spent = timeline.total_ns / 1e3
        peer = known.get(case.peer)
        print(
            f"{name:24}{spent:9.1f}{f'{spent / peer:7.3f}' if peer else '':>7}{case.before:9.1f}"
            f"{program.instruction_count:14}{seconds:11.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
