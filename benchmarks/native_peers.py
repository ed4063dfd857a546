"""The maths of `native_programs` in frameworks that simulate nothing, and in an interpreter.

torch runs eagerly, in the inputs' dtype. XLA:CPU compiles one function, which rounds to the inputs'
dtype where the kernel's tiles do and computes in fp32 between. Pallas TPU's interpreter runs a
kernel of the same blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

P = 128
BANK = 512


def peers(name: str, inputs: list[Array]) -> dict[str, Callable[[], Any]]:
    """The arms of a case, by its first word; whatever is installed."""
    found: dict[str, Callable[[], Any]] = {}
    for arm, make in (("torch", _torch), ("xla", _xla), ("pallas", _pallas)):
        try:
            function = make(name, inputs)
        except ImportError:
            continue
        if function is not None:
            found[arm] = function
    return found


# torch --------------------------------------------------------------------------------------------


def _torch(name: str, inputs: list[Array]) -> Callable[[], Any] | None:
    import torch

    def softmax(a: Any) -> Any:
        return torch.softmax(a, 1)

    def rmsnorm(a: Any, g: Any) -> Any:
        return torch.nn.functional.rms_norm(a, a.shape[1:], g[0], 1e-6)

    def gelu(a: Any, b: Any) -> Any:
        return torch.nn.functional.gelu(a * b + 1.5, approximate="tanh")

    def flash(q: Any, k: Any, v: Any) -> Any:
        heads = (t[None, None] for t in (q.T, k.T, v))
        return torch.nn.functional.scaled_dot_product_attention(*heads)

    def casts(a: Any) -> Any:
        return a.to(torch.float8_e4m3fn).to(a.dtype)

    maths: dict[str, Callable[..., Any]] = {
        "matmul": lambda a, b: a.T @ b,
        "softmax": softmax,
        "rmsnorm": rmsnorm,
        "gelu": gelu,
        "flash": flash,
        "fp8": casts,
    }
    function = maths.get(name)
    if function is None:
        return None
    torch.set_num_threads(1)
    tensors = [torch.from_numpy(a.astype(np.float32)) for a in inputs]
    if inputs[0].dtype != np.float32:
        tensors = [t.to(torch.bfloat16) for t in tensors]
    return lambda: function(*tensors)


# XLA ----------------------------------------------------------------------------------------------


def _xla(name: str, inputs: list[Array]) -> Callable[[], Any] | None:
    import jax
    import jax.numpy as jnp

    dtype = inputs[0].dtype

    def wide(x: Any) -> Any:
        return x.astype(jnp.float32)

    def tile(x: Any) -> Any:
        return wide(x.astype(dtype))

    def product(a: Any, b: Any) -> Any:
        return jnp.matmul(a, b, preferred_element_type=jnp.float32)

    def softmax(a: Any) -> Any:
        x = wide(a)
        powers = jnp.exp(x - x.max(1, keepdims=True))
        return (tile(powers) * (1 / powers.sum(1, keepdims=True))).astype(dtype)

    def rmsnorm(a: Any, g: Any) -> Any:
        x = wide(a)
        scale = jax.lax.rsqrt((x * x).sum(1, keepdims=True) * (1 / a.shape[1]) + 1e-6)
        return (tile(x * scale) * wide(g[:1])).astype(dtype)

    def gelu(a: Any, b: Any) -> Any:
        x = tile(tile(wide(a) * wide(b)) + 1.5)
        inner = 0.7978845608 * (x + 0.044715 * x * x * x)
        return (0.5 * x * (1 + jnp.tanh(inner))).astype(dtype)

    def flash(q: Any, k: Any, v: Any) -> Any:
        scores = product(q.T, k) * q.shape[0] ** -0.5
        powers = jnp.exp(scores - scores.max(1, keepdims=True))
        total = powers.sum(1, keepdims=True)
        return (product(powers.astype(dtype), v) / total).astype(dtype)

    def casts(a: Any) -> Any:
        return a.astype(jnp.float8_e4m3).astype(dtype)

    maths: dict[str, Callable[..., Any]] = {
        "matmul": lambda a, b: product(a.T, b).astype(dtype),
        "softmax": softmax,
        "rmsnorm": rmsnorm,
        "gelu": gelu,
        "flash": flash,
        "fp8": casts,
    }
    if name not in maths:
        return None
    arrays = [jnp.asarray(a) for a in inputs]
    compiled = jax.jit(maths[name])
    return lambda: compiled(*arrays).block_until_ready()


# Pallas -------------------------------------------------------------------------------------------

LARGEST_INTERPRETED = 1 << 20
"""Elements of an input beyond which the interpreter is left out: it takes seconds."""


def _pallas(name: str, inputs: list[Array]) -> Callable[[], Any] | None:
    if name not in ("matmul", "softmax", "gelu") or inputs[0].size > LARGEST_INTERPRETED:
        return None
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu

    dtype = inputs[0].dtype
    call = partial(pl.pallas_call, interpret=tpu.InterpretParams())

    def matmul_block(left: Any, right: Any, out: Any) -> None:
        total = jnp.matmul(left[...].T, right[...], preferred_element_type=jnp.float32)
        out[...] = total.astype(dtype)

    def softmax_block(a: Any, out: Any) -> None:
        x = a[...].astype(jnp.float32)
        powers = jnp.exp(x - x.max(1, keepdims=True))
        out[...] = (powers / powers.sum(1, keepdims=True)).astype(dtype)

    def gelu_block(a: Any, b: Any, out: Any) -> None:
        x = a[...].astype(jnp.float32) * b[...].astype(jnp.float32) + 1.5
        inner = 0.7978845608 * (x + 0.044715 * x * x * x)
        out[...] = (0.5 * x * (1 + jnp.tanh(inner))).astype(dtype)

    def matmul(a: Any, b: Any) -> Any:
        depth, rows = a.shape
        columns = b.shape[1]
        width = min(BANK, columns)
        return call(
            matmul_block,
            out_shape=jax.ShapeDtypeStruct((rows, columns), dtype),
            grid=(rows // P, columns // width),
            in_specs=[
                pl.BlockSpec((depth, P), lambda i, j: (0, i)),
                pl.BlockSpec((depth, width), lambda i, j: (0, j)),
            ],
            out_specs=pl.BlockSpec((P, width), lambda i, j: (i, j)),
        )(a, b)

    def rows(block: Callable[..., None], *arrays: Any) -> Any:
        shape = arrays[0].shape
        spec = pl.BlockSpec((P, shape[1]), lambda i: (i, 0))
        return call(
            block,
            out_shape=jax.ShapeDtypeStruct(shape, dtype),
            grid=(shape[0] // P,),
            in_specs=[spec] * len(arrays),
            out_specs=spec,
        )(*arrays)

    functions: dict[str, Callable[..., Any]] = {
        "matmul": matmul,
        "softmax": partial(rows, softmax_block),
        "gelu": partial(rows, gelu_block),
    }
    arrays = [jnp.asarray(a) for a in inputs]
    compiled = jax.jit(functions[name])
    return lambda: compiled(*arrays).block_until_ready()
