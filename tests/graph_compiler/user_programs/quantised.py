"""Numbers of few bits: packed, scaled and rounded; arrays written as a whole."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from user_programs.drawing import Draw, program


@program()
def packed_weights(draw: Draw):
    """Two weights of four bits a byte, unpacked by shifts, and packed again."""
    rows, half, columns = draw.size(1, 30), draw.size(1, 40), draw.size(1, 40)

    def function(x, packed, scale):
        low = (packed << 4).astype(jnp.int8) >> 4
        high = packed >> 4
        w = jnp.stack([low, high], 1).reshape(2 * half, columns)
        again = (w[1::2] << 4) | (w[::2] & 15)
        return x @ (w.astype(x.dtype) * scale), again.astype(jnp.int8)

    dtype = draw.float_type()
    return function, (
        draw.normal(rows, 2 * half, dtype=dtype),
        draw.bits(half, columns, dtype="int8"),
        draw.uniform(columns, dtype=dtype),
    )


@program(slack=3)
def ternary_layer(draw: Draw):
    """BitNet: weights of -1, 0 and 1, whose gradients go straight through."""
    rows, width, columns = draw.size(1, 30), draw.size(1, 40), draw.size(1, 40)

    def through(x, q):
        return x + jax.lax.stop_gradient(q - x)

    def function(w, x):
        size = jnp.mean(jnp.abs(w)) + 1e-3
        q = through(w, jnp.clip(jnp.floor(w / size + 0.5), -1, 1) * size)
        return jnp.mean(jnp.tanh(x @ q))

    w = draw.whole(-8, 9, width, columns) / 4 + 0.01
    return jax.value_and_grad(function), (w.astype("float32"), draw.normal(rows, width))


@program(refusals=("documented-refusal",))
def scaled_eight_bit_product(draw: Draw):
    """Both sides scaled into the range of eight-bit floats by a history of maxima."""
    rows, width, columns = draw.size(1, 30), draw.size(1, 60), draw.size(1, 30)

    def function(x, w, history):
        scale = jnp.max(history, 1) / 57344 * 2
        q, k = ((a / s).astype(jnp.float8_e5m2) for a, s in zip((x, w), scale))
        product = jax.lax.dot(q, k, preferred_element_type=jnp.float32) * scale[0] * scale[1]
        new = (
            jnp.roll(history, -1, 1)
            .at[:, -1]
            .set(jnp.stack([jnp.max(jnp.abs(x)), jnp.max(jnp.abs(w))]))
        )
        return product, new

    return function, (
        draw.normal(rows, width),
        draw.normal(width, columns),
        draw.uniform(2, draw.size(1, 16), low=0.5) * 4,
    )


@program()
def stochastic_rounding(draw: Draw):
    """Random bits below those that bf16 keeps, by integers."""
    count = draw.size(1, 300)

    def function(x, noise):
        bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
        moved = (bits + (noise & 0xFFFF)) & jnp.uint32(0xFFFF0000)
        return jax.lax.bitcast_convert_type(moved, jnp.float32).astype(jnp.bfloat16)

    return function, (draw.normal(count), draw.bits(count, dtype="uint32"))


@program(slack=5)
def quantised_cache(draw: Draw):
    """A ring of keys in eight bits with scales; the oldest is written over."""
    heads, room, width = draw.size(1, 4), draw.size(2, 24), draw.size(1, 32)

    def function(cache, scales, q, k, position):
        step = jnp.max(jnp.abs(k), -1) / 127 + 1e-4
        place = position % room
        new = jnp.clip(jnp.floor(k / step[:, None] + 0.5), -127, 127).astype(jnp.int8)
        cache = jax.lax.dynamic_update_slice(cache, new[:, None], (0, place, 0))
        scales = scales.at[:, place].set(step)
        scores = jnp.einsum("hd,htd->ht", q, cache.astype(q.dtype)) * scales
        seen = jnp.arange(room) <= jnp.minimum(position, room - 1)
        return jax.nn.softmax(jnp.where(seen, scores, -1e9)), cache, scales

    k = draw.whole(-99, 100, heads, width).astype("float32") / 8 + 0.03
    return function, (
        draw.bits(heads, room, width, dtype="int8"),
        draw.uniform(heads, room) / 100,
        draw.normal(heads, width, scale=0.1),
        k,
        draw.whole(0, 3 * room),
    )


@program()
def whole_updates(draw: Draw):
    """Arrays written as a whole or in large parts, as in-place code becomes."""
    rows, columns = draw.size(2, 200), draw.size(2, 200)
    dtype = draw.pick((np.float32, ml_dtypes.bfloat16, np.int32, np.uint8))

    def function(x, y):
        half = rows // 2
        return (
            *(x.at[:].set(y), x.at[...].add(y), x.at[:, :].multiply(y), x.at[:].max(y[0])),
            *(x.at[half:].set(y[half:]), x.at[:, 1:].add(y[:, 1:]), x.at[:half, 1:].min(3)),
            *(x.at[::2].set(y[::2]), x.at[-1].set(0), x[0, 0].at[()].set(y[0, 0])),
            *(jax.vmap(lambda a, b: a.at[:].set(b))(x, y), x.at[half].add(y[0])),
        )

    return function, tuple(draw.whole(0, 9, rows, columns).astype(dtype) for _ in range(2))
