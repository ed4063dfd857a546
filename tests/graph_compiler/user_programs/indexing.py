"""Elements by index: gathers and scatters of all modes, slices, shapes."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from user_programs.drawing import Draw, program

TYPES = ("float32", "bfloat16", "int32", "int8", "uint8")


def _table(draw: Draw, *shape: int):
    return draw.whole(-100, 100, *shape).astype(draw.pick(TYPES))


@program()
def gather_modes(draw: Draw):
    rows, width, count = draw.size(1, 50), draw.size(1, 40), draw.size(1, 60)
    mode, axis = draw.pick(("clip", "fill", "wrap", None)), draw.size(0, 1)

    def function(x, indices):
        return jnp.take(x, indices, axis=axis, mode=mode), jnp.take(x, indices, mode=mode)

    x = draw.whole(-100, 100, rows, width).astype(draw.pick(("float32", "int32")))
    return function, (x, draw.whole(-rows - 3, rows + width, count))


@program()
def scatter_modes(draw: Draw):
    """Distinct places for `set`, any for what commutes."""
    rows, width, count = draw.size(1, 50), draw.size(1, 40), draw.size(1, 60)
    mode = draw.pick(("drop", "clip", None))
    dtype = draw.pick(("float32", "int32", "bfloat16"))
    places = draw.random.permutation(rows + 20)[:count].astype("int32")

    def function(x, places, repeated, new):
        new = new[: places.shape[0]]
        return (
            x.at[places].set(new, mode="drop"),
            x.at[repeated].add(new[: repeated.shape[0]], mode=mode),
            x.at[repeated].max(new[: repeated.shape[0]], mode=mode),
            x.at[repeated].min(new[: repeated.shape[0]], mode=mode),
        )

    new = draw.whole(-9, 9, len(places), width).astype(dtype)
    x = draw.whole(-9, 9, rows, width).astype(dtype)
    return function, (x, places, draw.whole(-rows - 2, rows + 2, len(places)), new)


@program()
def point_updates(draw: Draw):
    """Elements by two indices, multiplied, added and read."""
    rows, width, count = draw.size(1, 40), draw.size(1, 40), draw.size(1, 50)

    def function(x, i, j, new):
        return x.at[i, j].add(new), x.at[i, j].mul(2.0), x[i, j], x.at[i].add(new[:, None])

    return function, (
        draw.whole(-9, 9, rows, width).astype("float32"),
        draw.whole(0, rows, count),
        draw.whole(-width, width, count),
        draw.whole(-9, 9, count).astype("float32"),
    )


@program()
def along_axis(draw: Draw):
    rows, width, count = draw.size(1, 50), draw.size(1, 50), draw.size(1, 20)
    axis = draw.size(0, 1)
    shape = (count, width) if axis == 0 else (rows, count)
    high = rows if axis == 0 else width

    def function(x, indices):
        return jnp.take_along_axis(x, indices, axis)

    return function, (_table(draw, rows, width), draw.whole(-high, high, *shape))


@program()
def gather_gradients(draw: Draw):
    rows, width, count = draw.size(1, 40), draw.size(1, 40), draw.size(1, 40)
    columns = draw.chance(0.5)

    def loss(x, i, y):
        return jnp.sum((x[:, i] if columns else x[i].T) * y)

    high = width if columns else rows
    y = draw.normal(rows if columns else width, count)
    return jax.grad(loss), (draw.normal(rows, width), draw.whole(0, high, count), y)


@program()
def scatter_gradients(draw: Draw):
    rows, width, count = draw.size(1, 40), draw.size(1, 40), draw.size(1, 40)

    def loss(x, new, i, y):
        scaled = x.at[i].multiply(new[0], unique_indices=True)
        return jnp.sum(jnp.sin(x.at[i].add(new)) * y) + jnp.sum(scaled * y)

    distinct = draw.random.permutation(max(rows, count))[:count].astype("int32")
    return jax.grad(loss, argnums=(0, 1)), (
        draw.normal(rows, width),
        draw.normal(count, width),
        distinct,
        draw.normal(rows, width),
    )


@program()
def clamped_slices(draw: Draw):
    shape = draw.size(3, 30), draw.size(3, 30), draw.size(1, 8)
    sizes = tuple(draw.size(1, one) for one in shape)

    def function(x, starts, new):
        part = jax.lax.dynamic_slice(x, starts, sizes)
        changed = jax.lax.dynamic_update_slice(x, new, [start + 1 for start in starts])
        return part, changed, jax.lax.dynamic_index_in_dim(changed, starts[1], 1, keepdims=False)

    x = _table(draw, *shape)
    new = x[tuple(slice(0, one) for one in sizes)] + 1
    return function, (x, [draw.whole(-5, one + 5) for one in shape], new.astype(x.dtype))


@program()
def batched_slices(draw: Draw):
    """vmap of a dynamic slice and update: a gather and a scatter of windows."""
    batch, length, width = draw.size(1, 9), draw.size(4, 40), draw.size(1, 20)
    size = draw.size(1, length)

    def one(x, start, new):
        part = jax.lax.dynamic_slice_in_dim(x, start, size)
        return part, jax.lax.dynamic_update_slice_in_dim(x, new, start, 0)

    x = _table(draw, batch, length, width)
    starts = draw.whole(-3, length + 3, batch)
    return jax.vmap(one), (x, starts, x[:, :size])


@program()
def static_slices(draw: Draw):
    rows, width = draw.size(4, 40), draw.size(4, 40)
    step = draw.size(1, 4)

    def function(x):
        a = x[1::step, ::-1]
        b = x[:, -3:].at[0].set(0)
        return a, b, jnp.concatenate([a[:1], x[:, ::-1][:2]], 0), x[..., None, 2], x[::-step]

    return function, (_table(draw, rows, width),)


@program()
def masked_choices(draw: Draw):
    shape = draw.size(1, 60), draw.size(1, 60)

    def function(x, lengths, mask):
        ragged = jnp.arange(shape[1])[None] < lengths[:, None]
        causal = jnp.tri(*shape, dtype=bool)
        count = jnp.maximum((ragged & mask).sum(1), 1)
        mean = jnp.where(ragged & mask, x, 0).sum(1) / count
        return mean, jnp.where(causal, x, -1), jnp.triu(x, 2), jnp.tril(x, -1), jnp.diagonal(x)

    return function, (
        draw.normal(*shape),
        draw.whole(0, shape[1] + 1, shape[0]),
        draw.flags(*shape),
    )


@program()
def shapes_and_axes(draw: Draw):
    a, b, c, d = (draw.size(1, high) for high in (6, 20, 9, 7))
    order = tuple(int(at) for at in draw.random.permutation(4))

    def function(x):
        y = jnp.transpose(x, order)
        z = y.reshape(-1, y.shape[-1])
        return z, jnp.moveaxis(x, 0, -1).sum(1), jnp.tile(z, (2, 1)), jnp.repeat(z, 3, axis=1)

    return function, (_table(draw, a, b, c, d),)


@program()
def odd_vmaps(draw: Draw):
    """Axes of a batch in the middle and at the end."""
    a, b, c = draw.size(1, 12), draw.size(1, 20), draw.size(1, 20)

    def one(x, w, y):
        return jnp.tanh(x @ w) + y, x.sum(0)

    mapped = jax.vmap(jax.vmap(one, (1, None, 0), (1, 0)), (3, 0, None), (0, 2))
    return mapped, (draw.normal(a, 3, b, 2), draw.normal(2, b, c), draw.normal(3, c))


@program()
def padded_arrays(draw: Draw):
    shape = draw.size(2, 20), draw.size(2, 20)
    config = [(draw.size(-1, 3), draw.size(-1, 3), draw.size(0, 2)) for _ in shape]
    mode = draw.pick(("edge", "wrap", "symmetric", "reflect"))

    def function(x):
        return jax.lax.pad(x, jnp.asarray(7, x.dtype), config), jnp.pad(x, 1, mode=mode)

    return function, (_table(draw, *shape),)


@program()
def one_hot_rows(draw: Draw):
    count, classes = draw.size(1, 90), draw.size(1, 60)
    dtype = draw.pick(("float32", "int32", "bfloat16", "bool"))

    def function(x):
        return jax.nn.one_hot(x, classes, dtype=dtype), jax.nn.one_hot(x, classes, axis=0)

    return function, (draw.whole(-2, classes + 2, count),)


@program()
def meshes(draw: Draw):
    """Positions of patches and boxes made of iotas."""
    height, width = draw.size(1, 20), draw.size(1, 20)

    def function(scale):
        y, x = jnp.meshgrid(jnp.arange(height), jnp.linspace(0, 1, width), indexing="ij")
        places = jnp.stack([y, x * scale], -1).reshape(-1, 2)
        return places, jnp.eye(height, width, 1) * scale, (y * width + x.astype(int)) % 7

    return function, (draw.uniform(),)


@program()
def circular_buffer(draw: Draw):
    """A buffer of experience written round and read at random places."""
    room, width, count = draw.size(2, 40), draw.size(1, 20), draw.size(1, 30)
    count = min(count, room)

    def function(buffer, new, head, wanted):
        places = (head + jnp.arange(count)) % room
        buffer = buffer.at[places].set(new)
        return buffer, buffer[wanted % room], (head + count) % room

    buffer, new = draw.normal(room, width), draw.normal(count, width)
    return function, (buffer, new, draw.whole(0, room), draw.whole(0, 1000, 9))
