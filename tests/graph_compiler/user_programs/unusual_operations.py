"""Operations in forms that few programs have."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from user_programs.drawing import Draw, program


@program(slack=5)
def convolutions_of_all_forms(draw: Draw):
    """Other orders of dimensions, dilations of both sides, groups of a batch, negative padding."""
    batch, size, channels = 2 * draw.size(1, 2), draw.size(5, 14), 2 * draw.size(1, 4)

    def function(x, w, u):
        y = lax.conv_general_dilated(
            x, w, (1, 2), [(2, -1), (0, 3)], lhs_dilation=(2, 1), rhs_dilation=(1, 2),
            dimension_numbers=("HWNC", "OIHW", "NCHW"),
        )  # fmt: skip
        z = lax.conv_general_dilated(
            x, u, (2, 1), "SAME", dimension_numbers=("HWNC", "HWIO", "HWNC"), batch_group_count=2
        )
        patches = lax.conv_general_dilated_patches(
            jnp.transpose(x, (2, 3, 0, 1)), (3, 2), (2, 1), "VALID"
        )
        return y, z, patches

    return function, (
        draw.normal(size, size, batch, channels),
        draw.normal(draw.size(1, 6), channels, 3, 2, scale=0.3),
        draw.normal(2, 3, channels, 2 * draw.size(1, 4), scale=0.3),
    )


@program()
def windows_of_all_forms(draw: Draw):
    """Dilated, padded windows; by any operation; maxima with the places that they come from."""
    height, width = draw.size(6, 30), draw.size(6, 30)

    def function(x, n):
        return (
            lax.reduce_window(x, -jnp.inf, lax.max, (3, 2), (2, 1), [(1, 2), (0, 1)]),
            lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 2), "VALID", window_dilation=(2, 3)),
            lax.reduce_window(
                n, np.int32(0), lax.bitwise_xor, (2, 3), (1, 1), "SAME", base_dilation=(2, 1)
            ),
            lax.reduce_window(n, np.int32(1), lax.mul, (1, 3), (1, 1), "SAME"),
            lax.cummax(x, 1),
            lax.cummin(n, 0, reverse=True),
            lax.cumlogsumexp(x / 8, 1),
        )

    return function, (
        draw.distinct(height, width) / np.float32(height),
        draw.whole(-9, 9, height, width),
    )


@program()
def folds_by_own_functions(draw: Draw):
    """Reductions by computations: several results, products, logic, over many dimensions."""
    a, b, c = draw.size(1, 12), draw.size(1, 16), draw.size(1, 20)

    def function(x, n, flags):
        def first_largest(one, other):
            more = (other[0] > one[0]) | ((other[0] == one[0]) & (other[1] < one[1]))
            return tuple(jnp.where(more, q, p) for p, q in zip(one, other))

        places = lax.broadcasted_iota(jnp.int32, x.shape, 1)
        return (
            lax.reduce((x, places), (-jnp.inf, np.int32(0)), first_largest, (1,)),
            lax.reduce(n, np.int32(-1), lax.bitwise_and, (0, 2)),
            lax.reduce(abs(n), np.int32(0), lambda p, q: jnp.where(p > q, p, q), (2,)),
            lax.reduce(flags, np.bool_(False), lax.bitwise_xor, (0, 1, 2)),
            jnp.prod(n % 3, 1),
        )

    return function, (
        draw.distinct(a, b, c),
        draw.whole(-99, 99, a, b, c),
        draw.flags(a, b, c),
    )


@program()
def sorts_by_own_keys(draw: Draw):
    """Several keys, NaN and signed zeros, other types, downward, along a middle axis."""
    rows, size = draw.size(1, 12), draw.size(2, 60)

    def function(x, n, small, flags):
        return (
            lax.sort((n, x, small), dimension=1, num_keys=2),
            lax.sort(small, dimension=0),
            jnp.sort(x, axis=1, descending=True, stable=True),
            jnp.argsort(n, axis=1, stable=True, descending=True),
            jnp.sort(flags, axis=1),
            jnp.sort(jnp.stack([x, -x], 2), axis=1),
            lax.top_k(n, min(3, size))[0],
        )

    x = draw.normal(rows, size)
    x[draw.flags(rows, size, share=0.1)] = np.nan
    return function, (
        x,
        draw.whole(0, 5, rows, size),
        draw.bits(rows, size, dtype=np.uint8),
        draw.flags(rows, size),
    )


@program()
def scatters_of_all_forms(draw: Draw):
    """Windows moved and batched, products, extremes, own functions, places that repeat."""
    rows, columns, count = draw.size(3, 30), draw.size(3, 30), draw.size(1, 20)

    def function(x, n, at, updates, whole):
        return (
            x.at[at, :2].mul(2.0, mode="drop"),
            n.at[at].max(whole),
            n.at[at].min(whole, mode="clip"),
            n.at[:, 1:3].apply(lambda v: v * v + 1),
            x.at[at[0], 1:].set(updates[0, 1:]),
            n.at[at[:, None], jnp.arange(2)].add(whole[:, :2]),
            jax.vmap(lambda row, i, v: row.at[i].set(v))(
                x[:count], at[: len(x)] % columns, at[: len(x)] * 1.0
            )
            if count <= rows
            else x,
            x.at[::2, ::-1].set(x[::2] + 1),
            x.at[-1, -1].divide(4.0),
        )

    return function, (
        draw.distinct(rows, columns),
        draw.whole(-9, 9, rows, columns),
        draw.whole(0, rows, count),
        draw.normal(count, columns),
        draw.whole(-20, 20, count, columns),
    )


@program(slack=5)
def small_types(draw: Draw):
    """Arithmetic in 8 and 16 bits, products of integers and halves, mixed promotion."""
    rows, columns = draw.size(1, 30), draw.size(1, 40)

    def function(a, b, c, h):
        return (
            a + b,
            a * a,
            jnp.clip(a.astype(jnp.int32) - b, -128, 127).astype(jnp.int8),
            lax.dot(a, b.T, preferred_element_type=jnp.int32),
            c.astype(jnp.uint8) // 7,
            c >> 3,
            c * c,
            (h * 2 + 1).astype(jnp.float16),
            jnp.mean(h, 0),
            h @ h.T,
            (h > 0.5) & (a > 0),
            jnp.abs(a),
            jnp.max(c, 1),
            a.sum(0, dtype=jnp.int8),
            lax.convert_element_type(h * 20, jnp.int8),
        )

    return function, (
        draw.bits(rows, columns, dtype=np.int8),
        draw.bits(rows, columns, dtype=np.int8),
        draw.bits(rows, columns, dtype=np.uint16),
        draw.normal(rows, columns, dtype=np.float16),
    )


@program()
def branches_of_many_kinds(draw: Draw):
    """Conditions under vmap and grad, loops that carry tuples of several types, breaks by flags."""
    count, size = draw.size(1, 16), draw.size(1, 20)

    def function(x, n):
        def one(x, n):
            y = lax.cond(n % 2 == 0, lambda x: x * 2, lambda x: x[::-1] + 1, x)
            return lax.switch(n % 3, [jnp.cumsum, jnp.flip, lambda v: v - v[0]], y)

        def halving(n):
            def step(state):
                n, count, odd = state
                return n // 2, count + 1, odd ^ (n % 2 == 1)

            return lax.while_loop(lambda s: s[0] > 0, step, (n, np.int32(0), False))

        def loop(i, state):
            total, best, kept = state
            new = jnp.sum(x[i % count])
            return total + i, jnp.maximum(best, new), kept.at[i % size].add(1)

        begin = np.int32(0), jnp.float32(-1e9), jnp.zeros(size, jnp.int32)
        return jax.vmap(one)(x, n), jax.vmap(halving)(n), lax.fori_loop(0, n[0] + 3, loop, begin)

    return function, (draw.whole(-9, 9, count, size).astype(np.float32), draw.whole(0, 200, count))


@program()
def no_elements(draw: Draw):
    """Arrays without elements beside others, scalars, and dimensions of one."""
    rows, columns = draw.size(1, 9), draw.size(1, 9)

    def function(x, empty, scalar):
        return (
            jnp.concatenate([x, empty], 0),
            jnp.sum(empty, 0),
            empty @ x.T,
            x.T[:, :0] @ empty,
            jnp.sort(empty, 0),
            empty * 2,
            scalar + 1,
            jnp.sum(scalar),
            x[:, None, :, None].transpose(3, 2, 1, 0),
            jnp.broadcast_to(scalar, (1, rows, 1)),
            jnp.zeros((0,), bool).any(),
            x.reshape(-1)[:1].reshape(()),
        )

    return function, (
        draw.whole(-9, 9, rows, columns).astype(np.float32),
        np.zeros((0, columns), np.float32),
        np.float32(3),
    )


@program(slack=5)
def products_of_all_forms(draw: Draw):
    """Contractions over several dimensions, batches in the middle, vectors, outer products."""
    a, b, c, d = (draw.size(1, 12) for _ in range(4))

    def function(x, y, z):
        return (
            lax.dot_general(x, y, (((1, 3), (2, 0)), ((0,), (1,)))),
            jnp.einsum("abcd,dabe->ce", x, y[..., :2]),
            jnp.einsum("abcd->db", x),
            jnp.einsum("abcd,abcd->", x, x),
            jnp.tensordot(x, z, 2) if x.shape[2:] == z.shape[:2] else z,
            jnp.einsum("abcd,cd->ab", x, z),
            jnp.inner(z, z),
            jnp.einsum("ab,cd->acbd", z, z),
            jnp.einsum("aabb->ab", jnp.zeros((2, 2, 3, 3)) + x[0, 0, 0, 0]),
            jnp.vdot(z, z),
        )

    return function, (
        draw.normal(a, b, c, d),
        draw.normal(d, a, b, draw.size(2, 9)),
        draw.normal(c, d),
    )


@program(slack=10)
def transforms_of_transforms(draw: Draw):
    """Jacobians, Hessians, vmaps of gradients, linearised functions, own tangent rules."""
    size, out = draw.size(1, 10), draw.size(1, 6)

    @jax.custom_jvp
    def soft(x):
        return jnp.logaddexp(x, 0.0)

    soft.defjvp(lambda p, t: (soft(*p), t[0] * jax.nn.sigmoid(p[0])))

    def function(w, x, v):
        def f(x):
            return soft(w @ jnp.sin(x))

        def scalar(x):
            return jnp.sum(f(x) ** 2)

        y, pushed = jax.linearize(f, x)
        _, pulled = jax.vjp(f, x)
        return (
            jax.jacfwd(f)(x),
            jax.jacrev(f)(x),
            jax.hessian(scalar)(x),
            pushed(v),
            pulled(y)[0],
            jax.vmap(jax.grad(scalar))(jnp.stack([x, v])),
            jax.checkpoint(scalar)(x),
            jax.grad(lambda x: jnp.vdot(jax.grad(scalar)(x), v))(x),
        )

    return function, (draw.normal(out, size, scale=0.5), draw.normal(size), draw.normal(size))


@program()
def words_and_texts(draw: Draw):
    """Byte pairs merged in a loop; suffixes ordered by doubling; matches of a pattern."""
    length = draw.size(4, 60)

    def function(text, pattern):
        def merge(_, state):
            text, live, new = state
            nxt = jnp.where(jnp.arange(length) + 1 < live, jnp.roll(text, -1), -1)
            pairs = jnp.where(nxt >= 0, text * 1000 + nxt, -1)
            order = jnp.sort(pairs)
            counts = jnp.searchsorted(order, order, side="right") - jnp.searchsorted(order, order)
            best = order[jnp.argmax(jnp.where(order >= 0, counts, -1))]
            here = pairs == best

            def take(before, one):
                used = one & ~before
                return used, used

            _, used = lax.scan(take, False, here)
            text = jnp.where(used, new, text)
            gone = jnp.roll(used, 1).at[0].set(False)
            keep = ~gone & (jnp.arange(length) < live)
            order = jnp.argsort(~keep, stable=True)
            return jnp.where(jnp.arange(length) < keep.sum(), text[order], -1), keep.sum(), new + 1

        def doubled(rank, k):
            after = jnp.where(jnp.arange(length) + k < length, jnp.roll(rank, -k), -1)
            key = rank * (length + 1) + after + 1
            return jnp.searchsorted(jnp.sort(key), key), None

        rank = text
        for k in (1, 2, 4):
            rank, _ = doubled(rank, k)
        windows = jnp.stack([jnp.roll(text, -i) for i in range(3)], 1)
        found = jnp.all(windows == pattern, 1)
        start = text, jnp.int32(length), jnp.int32(10)
        return lax.fori_loop(0, 3, merge, start), rank, found, jnp.argmax(found)

    return function, (draw.whole(0, 4, length), draw.whole(0, 4, 3))


@program(slack=5)
def deformable_convolution(draw: Draw):
    """Each tap of a kernel reads between pixels, where learned offsets say; with gradients."""
    height, width, channels, out = (draw.size(2, n) for n in (10, 10, 8, 8))

    def function(x, offsets, w):
        def output(x, offsets, w):
            rows = jnp.arange(height)[:, None, None] + jnp.array([-1, 0, 1, 0, 0])
            columns = jnp.arange(width)[None, :, None] + jnp.array([0, 0, 0, -1, 1])
            y, z = rows + offsets[..., 0], columns + offsets[..., 1]
            low_y, low_z = jnp.floor(y), jnp.floor(z)
            total = 0.0
            for i in (0, 1):
                for j in (0, 1):
                    at, to = low_y + i, low_z + j
                    inside = (at >= 0) & (at < height) & (to >= 0) & (to < width)
                    share = (1 - jnp.abs(y - at)) * (1 - jnp.abs(z - to)) * inside
                    own = x[at.astype(int).clip(0, height - 1), to.astype(int).clip(0, width - 1)]
                    total = total + own * share[..., None]
            return jnp.einsum("hwkc,kco->hwo", total, w)

        def loss(*given):
            return jnp.mean(output(*given) ** 2)

        return output(x, offsets, w), jax.grad(loss, argnums=(0, 1, 2))(x, offsets, w)

    eighths = draw.whole(-11, 12, height, width, 5, 2).astype(np.float32) / 8 + np.float32(0.0625)
    return function, (
        draw.normal(height, width, channels),
        eighths,
        draw.normal(5, channels, out, scale=0.3),
    )


@program(slack=5)
def sparse_matrices(draw: Draw):
    """CSR and coordinates: products by segment sums, both ways, blocks, and a softmax of rows."""
    rows, columns, count, width = (draw.size(2, n) for n in (30, 30, 80, 16))

    def function(values, row, column, ends, x, y):
        own = jnp.searchsorted(ends, jnp.arange(count), side="right")
        forth = jax.ops.segment_sum(values[:, None] * x[column], own, rows, indices_are_sorted=True)
        back = jax.ops.segment_sum(values[:, None] * y[row], column, columns)
        largest = jax.ops.segment_max(values, row, rows)
        e = jnp.exp(values - largest[row])
        share = e / jax.ops.segment_sum(e, row, rows)[row]
        return (
            forth,
            back,
            share,
            jax.ops.segment_prod(values, row, rows),
            jnp.zeros((rows, columns)).at[row, column].add(values),
        )

    row = np.sort(draw.whole(0, rows, count))
    row[-1] = rows - 1
    ends = np.searchsorted(row, np.arange(rows), side="right").astype(np.int32)
    return function, (
        draw.normal(count),
        row.astype(np.int32),
        draw.whole(0, columns, count),
        ends,
        draw.normal(columns, width),
        draw.normal(rows, width),
    )


@program(slack=5)
def bfloat16_everywhere(draw: Draw):
    """A block of a model all in bf16: norms, a gated layer, a mean, a scan."""
    length, width = draw.size(1, 30), draw.size(2, 60)
    low = np.dtype(ml_dtypes.bfloat16)

    def function(x, g, w1, w2, w3):
        def norm(x):
            return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + jnp.bfloat16(1e-2)) * g

        def step(state, x):
            state = jnp.bfloat16(0.5) * state + x
            return state, jnp.tanh(state)

        y = norm(x)
        y = x + (jax.nn.silu(y @ w1) * (y @ w2)) @ w3
        _, z = lax.scan(step, jnp.zeros(width, low), y[:3])
        return y, z, jnp.argmax(x, -1)

    x = (draw.distinct(length, width) / np.float32(64)).astype(np.float32)
    x = np.round(x * 8) / 8
    return function, (
        x.astype(low),
        draw.normal(width, dtype=low),
        draw.normal(width, 2 * width, dtype=low, scale=0.1),
        draw.normal(width, 2 * width, dtype=low, scale=0.1),
        draw.normal(2 * width, width, dtype=low, scale=0.1),
    )
