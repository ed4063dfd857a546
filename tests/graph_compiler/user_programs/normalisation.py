"""Normalisation, activations and their gradients; losses."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from user_programs.drawing import Draw, program


def _group_norm(x, scale, bias, groups):
    shape = x.shape
    y = x.reshape(*shape[:-1], groups, shape[-1] // groups)
    axes = (*range(1, x.ndim - 1), y.ndim - 1)
    mean = y.mean(axes, keepdims=True)
    variance = ((y - mean) ** 2).mean(axes, keepdims=True)
    y = (y - mean) * jax.lax.rsqrt(variance + 1e-3)
    return y.reshape(shape) * scale + bias


def _group_norm_operands(draw: Draw):
    groups, each = draw.size(1, 6), draw.size(2, 9)
    x = draw.normal(draw.size(1, 4), draw.size(2, 12), draw.size(2, 12), groups * each)
    return groups, (x, draw.normal(groups * each), draw.normal(groups * each))


@program()
def group_norm(draw: Draw):
    groups, operands = _group_norm_operands(draw)
    return lambda x, s, b: _group_norm(x, s, b, groups), operands


@program()
def group_norm_gradients(draw: Draw):
    groups, operands = _group_norm_operands(draw)

    def loss(x, s, b):
        return jnp.sum(jnp.sin(_group_norm(x, s, b, groups)))

    return jax.grad(loss, argnums=(0, 1, 2)), operands


@program()
def batch_norm_training(draw: Draw):
    channels_first = draw.chance(0.5)
    channels = draw.size(1, 30)
    shape = [draw.size(2, 6), draw.size(1, 12), draw.size(2, 12)]
    shape.insert(1 if channels_first else 3, channels)
    axes = (0, 2, 3) if channels_first else (0, 1, 2)

    def loss(x, scale, bias, mean, variance):
        m, v = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
        wide = [1] * 4
        wide[1 if channels_first else 3] = channels
        y = (x - m) * jax.lax.rsqrt(v + 1e-3) * scale.reshape(wide) + bias.reshape(wide)
        running = 0.9 * mean + 0.1 * m.ravel(), 0.9 * variance + 0.1 * v.ravel()
        return jnp.sum(jax.nn.relu(y) ** 2), running

    operands = [draw.normal(channels) for _ in range(4)]
    return jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True), (
        draw.normal(*shape),
        *operands,
    )


@program()
def instance_norm(draw: Draw):
    dtype = draw.float_type()
    x = draw.normal(
        draw.size(1, 3), draw.size(1, 20), draw.size(2, 14), draw.size(2, 14), dtype=dtype
    )

    def function(x):
        wide = x.astype(jnp.float32)
        mean, variance = wide.mean((2, 3), keepdims=True), wide.var((2, 3), keepdims=True)
        return ((wide - mean) / jnp.sqrt(variance + 1e-3)).astype(x.dtype)

    return function, (x,)


def _layer_norm(x, scale, bias):
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = jnp.mean(wide * wide, -1, keepdims=True) - mean * mean
    return ((wide - mean) * jax.lax.rsqrt(variance + 1e-2)).astype(x.dtype) * scale + bias


@program()
def layer_norm(draw: Draw):
    dtype, width = draw.float_type(), draw.size(2, 300)
    x = draw.normal(draw.size(1, 150), width, dtype=dtype)
    return _layer_norm, (x, draw.normal(width, dtype=dtype), draw.normal(width, dtype=dtype))


@program()
def layer_norm_gradients(draw: Draw):
    dtype, width = draw.float_type(), draw.size(2, 200)

    def loss(x, scale, bias):
        return jnp.sum(jnp.sin(_layer_norm(x, scale, bias).astype(jnp.float32)))

    x = draw.normal(draw.size(1, 3), draw.size(1, 50), width, dtype=dtype)
    operands = x, draw.normal(width, dtype=dtype), draw.normal(width, dtype=dtype)
    return jax.grad(loss, argnums=(0, 1, 2)), operands


@program()
def rms_norm_block(draw: Draw):
    """Llama's feed-forward layer."""
    dtype = draw.float_type()
    rows, width, hidden = draw.size(1, 90), draw.size(2, 100), draw.size(1, 150)

    def function(x, scale, gate, up, down):
        wide = x.astype(jnp.float32)
        y = wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-5)
        y = y.astype(x.dtype) * scale
        return x + (jax.nn.silu(y @ gate) * (y @ up)) @ down

    return function, (
        draw.normal(rows, width, dtype=dtype),
        draw.normal(width, dtype=dtype),
        draw.normal(width, hidden, dtype=dtype, scale=0.1),
        draw.normal(width, hidden, dtype=dtype, scale=0.1),
        draw.normal(hidden, width, dtype=dtype, scale=0.1),
    )


@program()
def weight_standardisation(draw: Draw):
    shape = draw.size(1, 3), draw.size(1, 3), draw.size(2, 30), draw.size(1, 40)

    def function(w, gain):
        mean, variance = w.mean((0, 1, 2)), w.var((0, 1, 2))
        fan = shape[0] * shape[1] * shape[2]
        return (w - mean) * jax.lax.rsqrt(jnp.maximum(variance * fan, 1e-4)) * gain

    return function, (draw.normal(*shape), draw.normal(shape[3]))


@program()
def spectral_norm(draw: Draw):
    rows, columns = draw.size(2, 50), draw.size(2, 50)

    def function(w, u):
        def step(_, u):
            v = w.T @ u
            u = w @ (v / jnp.linalg.norm(v))
            return u / jnp.linalg.norm(u)

        u = jax.lax.fori_loop(0, 3, step, u / jnp.linalg.norm(u))
        return w / (u @ w @ (w.T @ u / jnp.linalg.norm(w.T @ u))), u

    return function, (draw.normal(rows, columns), draw.normal(rows))


ACTIVATIONS = (
    *(jax.nn.gelu, jax.nn.silu, jax.nn.elu, jax.nn.selu, jax.nn.softplus, jax.nn.mish),
    *(jax.nn.relu6, jax.nn.hard_swish, jax.nn.log_sigmoid, jax.nn.celu, jax.nn.soft_sign),
    *(jnp.tanh, jnp.arctan, jnp.sinh, jnp.cbrt, jnp.log1p, jnp.expm1, jax.scipy.special.erf),
    *(jax.nn.hard_tanh, jax.nn.squareplus, jnp.sinc, jnp.arcsinh),
)


@program()
def activations(draw: Draw):
    chosen = [draw.pick(ACTIVATIONS) for _ in range(3)]
    dtype = draw.float_type()

    def function(x):
        return [one(x) for one in chosen]

    return function, (draw.uniform(draw.size(1, 140), draw.size(1, 50), dtype=dtype, low=-0.9) * 4,)


@program()
def activation_gradients(draw: Draw):
    chosen = draw.pick(ACTIVATIONS)
    x = draw.normal(draw.size(1, 140), draw.size(1, 50))
    return jax.grad(lambda x: jnp.sum(chosen(jnp.abs(x) + 0.1))), (x,)


@program()
def focal_loss(draw: Draw):
    rows, classes = draw.size(1, 90), draw.size(2, 40)

    def loss(logits, labels):
        logs = jax.nn.log_softmax(logits)
        log = jnp.take_along_axis(logs, labels[:, None], 1)[:, 0]
        weights = (1 - jnp.exp(log)) ** 2
        valid = labels >= 0
        return -jnp.sum(jnp.where(valid, weights * log, 0)) / jnp.maximum(valid.sum(), 1)

    return jax.value_and_grad(loss), (draw.normal(rows, classes), draw.whole(-1, classes, rows))


@program()
def dice_loss(draw: Draw):
    shape = draw.size(1, 3), draw.size(1, 20), draw.size(1, 20), draw.size(1, 4)

    def loss(logits, truth):
        p = jax.nn.sigmoid(logits)
        both = jnp.sum(p * truth, (1, 2))
        return jnp.mean(1 - (2 * both + 1) / (p.sum((1, 2)) + truth.sum((1, 2)) + 1))

    return jax.value_and_grad(loss), (draw.normal(*shape), draw.flags(*shape).astype("float32"))


@program()
def contrastive_loss(draw: Draw):
    rows, width = draw.size(2, 60), draw.size(2, 50)

    def loss(a, b, scale):
        a = a / jnp.linalg.norm(a, axis=1, keepdims=True)
        b = b / jnp.linalg.norm(b, axis=1, keepdims=True)
        logits = a @ b.T * jnp.exp(scale)
        at = jnp.arange(rows)
        both = [-jax.nn.log_softmax(logits, axis)[at, at].mean() for axis in (0, 1)]
        return sum(both) / 2

    operands = draw.normal(rows, width), draw.normal(rows, width), draw.uniform()
    return jax.value_and_grad(loss, argnums=(0, 1, 2)), operands


@program()
def triplet_loss(draw: Draw):
    """The hardest positive and negative of each row."""
    rows, width = draw.size(2, 40), draw.size(1, 20)

    def loss(x, labels):
        squares = jnp.sum((x[:, None] - x[None]) ** 2, -1)
        same = labels[:, None] == labels[None]
        positive = jnp.max(jnp.where(same, squares, 0), 1)
        negative = jnp.min(jnp.where(same, jnp.inf, squares), 1)
        return jnp.mean(jax.nn.relu(jnp.minimum(positive - negative, 100.0) + 1.0))

    return jax.value_and_grad(loss), (draw.normal(rows, width), draw.whole(0, 5, rows))


@program()
def smoothed_cross_entropy(draw: Draw):
    """Of sequences, padding ignored, with the square of the normaliser."""
    dtype = draw.float_type()
    batch, length, words = draw.size(1, 4), draw.size(1, 20), draw.size(2, 150)

    def loss(logits, labels, mask):
        logits = logits.astype(jnp.float32)
        normaliser = jax.nn.logsumexp(logits, axis=-1)
        targets = jax.nn.one_hot(labels, words) * 0.9 + 0.1 / words
        each = normaliser - jnp.sum(targets * logits, -1) + 1e-4 * normaliser**2
        return jnp.sum(each * mask) / jnp.maximum(mask.sum(), 1)

    return jax.value_and_grad(loss), (
        draw.normal(batch, length, words, dtype=dtype),
        draw.whole(0, words, batch, length),
        draw.flags(batch, length).astype("float32"),
    )


@program()
def regression_losses(draw: Draw):
    """Huber, quantile and log-cosh."""
    shape = draw.size(1, 90), draw.size(1, 9)

    def loss(x, y):
        error = x - y
        size = jnp.abs(error)
        huber = jnp.where(size < 1, 0.5 * error**2, size - 0.5)
        quantile = jnp.maximum(0.9 * error, -0.1 * error)
        cosh = error + jax.nn.softplus(-2 * error) - jnp.log(2.0)
        return jnp.mean(huber) + jnp.mean(quantile) + jnp.mean(cosh)

    return jax.value_and_grad(loss), (draw.normal(*shape), draw.normal(*shape))


@program()
def optimal_transport(draw: Draw):
    """Sinkhorn in logarithms, and its gradient."""
    rows, columns, steps = draw.size(1, 30), draw.size(1, 30), draw.size(1, 8)

    def loss(cost):
        def step(_, uv):
            u, v = uv
            u = -jax.nn.logsumexp(v[None] - cost, axis=1) - jnp.log(rows)
            v = -jax.nn.logsumexp(u[:, None] - cost, axis=0) - jnp.log(columns)
            return u, v

        u, v = jax.lax.fori_loop(0, steps, step, (jnp.zeros(rows), jnp.zeros(columns)))
        return jnp.sum(jnp.exp(u[:, None] + v[None] - cost) * cost)

    return jax.value_and_grad(loss), (draw.uniform(rows, columns) * 3,)


@program()
def k_means(draw: Draw):
    """Rounds on whole coordinates: distances are exact while centres are."""
    rows, centres, width = draw.size(1, 80), draw.size(1, 8), draw.size(1, 6)

    def function(x, c):
        def step(c, _):
            index = jnp.argmin(((x[:, None] - c[None]) ** 2).sum(-1), 1)
            total = jax.ops.segment_sum(x, index, centres)
            count = jax.ops.segment_sum(jnp.ones(rows), index, centres)
            return jnp.where(count[:, None] > 0, total // jnp.maximum(count, 1)[:, None], c), index

        return jax.lax.scan(step, c, None, length=3)

    whole = (draw.whole(-20, 21, count, width).astype("float32") for count in (rows, centres))
    return function, tuple(whole)
