"""Small models as a whole: forward, a step of training with donated state, a step of inference."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp

from user_programs.attention import attend
from user_programs.drawing import Draw, program


def _norm(x, scale):
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-3)
    return wide.astype(x.dtype) * scale


def _heads(x, count):
    return x.reshape(*x.shape[:-1], count, -1).swapaxes(-2, -3)


def _layer(x, weights, heads):
    q, k, v = (
        _heads(one, heads) for one in jnp.split(_norm(x, weights["n1"]) @ weights["qkv"], 3, -1)
    )
    mask = jnp.tril(jnp.ones((x.shape[-2],) * 2, bool))
    x = x + attend(q, k, v, mask).swapaxes(-2, -3).reshape(x.shape) @ weights["o"]
    return x + jax.nn.gelu(_norm(x, weights["n2"]) @ weights["up"]) @ weights["down"]


def _decoder(draw: Draw, dtype):
    """Weights of stacked layers, tokens, and the number of heads."""
    layers, heads, each, words = (
        draw.size(1, 3),
        draw.size(1, 3),
        draw.size(2, 12),
        draw.size(3, 70),
    )
    width, hidden = heads * each, draw.size(2, 60)
    batch, length = draw.size(1, 3), draw.size(2, 24)
    small = width**-0.5

    def matrix(*shape):
        return draw.normal(layers, *shape, dtype=dtype, scale=small)

    weights = {
        "table": draw.normal(words, width, dtype=dtype, scale=0.5),
        "layers": {
            "qkv": matrix(width, 3 * width),
            "o": matrix(width, width),
            "up": matrix(width, hidden),
            "down": matrix(hidden, width),
            "n1": draw.uniform(layers, width, dtype=dtype, low=0.5),
            "n2": draw.uniform(layers, width, dtype=dtype, low=0.5),
        },
    }
    return weights, draw.whole(0, words, batch, length + 1), heads


def _decoder_loss(weights, tokens, heads, remat):
    x = weights["table"][tokens[:, :-1]]

    def step(x, own):
        return _layer(x, own, heads), None

    x, _ = jax.lax.scan(jax.checkpoint(step) if remat else step, x, weights["layers"])
    logits = (x @ weights["table"].T).astype(jnp.float32)
    logs = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(logs, tokens[:, 1:, None], -1))


@program()
def decoder_training_step(draw: Draw):
    """Momentum in fp32, weights in bf16 or fp32, all of the state donated."""
    weights, tokens, heads = _decoder(draw, draw.float_type())
    momentum = jax.tree.map(lambda one: draw.normal(*one.shape, scale=0.01), weights)
    remat = draw.chance(0.5)

    def step(weights, momentum, tokens):
        loss, gradients = jax.value_and_grad(_decoder_loss)(weights, tokens, heads, remat)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g.astype(m.dtype), momentum, gradients)
        weights = jax.tree.map(lambda w, m: (w - 0.1 * m).astype(w.dtype), weights, momentum)
        return weights, momentum, loss

    return jax.jit(step, donate_argnums=(0, 1)), (weights, momentum, tokens)


@program()
def decoder_loss(draw: Draw):
    weights, tokens, heads = _decoder(draw, draw.pick(("float32", "bfloat16", "float16")))
    return lambda w, t: _decoder_loss(w, t, heads, False), (weights, tokens)


@program()
def decoder_evaluated_by_batches(draw: Draw):
    """Losses of batches by a map, and their mean, weighted."""
    weights, tokens, heads = _decoder(draw, "float32")
    several = jnp.stack([tokens, (tokens + 1) % weights["table"].shape[0]])

    def function(weights, several):
        losses = jax.lax.map(lambda t: _decoder_loss(weights, t, heads, False), several)
        return losses, losses.mean()

    return function, (weights, several)


def _convolved(x, w, stride=1):
    return jax.lax.conv_general_dilated(
        *(x, w, (stride, stride), "SAME"), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _residual_block(x, weights, stride):
    """Two convolutions with batch statistics, and a shortcut."""
    moments = []

    def normalised(y, scale):
        m, v = y.mean((0, 1, 2)), y.var((0, 1, 2))
        moments.append((m, v))
        return (y - m) * jax.lax.rsqrt(v + 1e-2) * scale

    y = jax.nn.relu(normalised(_convolved(x, weights["c1"], stride), weights["s1"]))
    y = normalised(_convolved(y, weights["c2"]), weights["s2"])
    return jax.nn.relu(y + _convolved(x, weights["short"], stride)), moments


@program(slack=5)
def residual_network_step(draw: Draw):
    channels, width, classes = draw.size(1, 4), draw.size(2, 12), draw.size(2, 9)
    batch, side, stride = draw.size(2, 4), draw.size(4, 10), draw.size(1, 2)
    weights = {
        "c1": draw.normal(3, 3, channels, width, scale=0.3),
        "c2": draw.normal(3, 3, width, width, scale=0.3),
        "short": draw.normal(1, 1, channels, width),
        "s1": draw.uniform(width, low=0.5),
        "s2": draw.uniform(width, low=0.5),
        "head": draw.normal(width, classes),
    }

    def loss(weights, x, labels):
        y, moments = _residual_block(x, weights, stride)
        logits = y.mean((1, 2)) @ weights["head"]
        chosen = jax.nn.one_hot(labels, classes)
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * chosen, -1)), moments

    def step(weights, x, labels):
        (value, moments), gradients = jax.value_and_grad(loss, has_aux=True)(weights, x, labels)
        return value, moments, jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)

    step = jax.jit(step, donate_argnums=0) if draw.chance(0.5) else step
    return step, (weights, draw.normal(batch, side, side, channels), draw.whole(0, classes, batch))


@program()
def vision_transformer_step(draw: Draw):
    grid, size, channels, heads = draw.size(1, 4), draw.size(2, 4), draw.size(1, 3), draw.size(1, 3)
    width, classes, batch = heads * draw.size(2, 10), draw.size(2, 9), draw.size(1, 4)
    dtype = draw.float_type()
    weights = {
        "patch": draw.normal(size * size * channels, width, dtype=dtype, scale=0.3),
        "place": draw.normal(grid * grid + 1, width, dtype=dtype),
        "token": draw.normal(width, dtype=dtype),
        "qkv": draw.normal(width, 3 * width, dtype=dtype, scale=0.3),
        "head": draw.normal(width, classes, dtype=dtype, scale=0.3),
    }

    def loss(weights, x, labels):
        x = x.reshape(batch, grid, size, grid, size, channels).transpose(0, 1, 3, 2, 4, 5)
        x = x.reshape(batch, grid * grid, -1) @ weights["patch"]
        first = jnp.broadcast_to(weights["token"], (batch, 1, width))
        x = jnp.concatenate([first, x], 1) + weights["place"]
        q, k, v = (_heads(one, heads) for one in jnp.split(x @ weights["qkv"], 3, -1))
        x = x + attend(q, k, v).swapaxes(1, 2).reshape(x.shape)
        logits = (x[:, 0] @ weights["head"]).astype(jnp.float32)
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(batch), labels])

    x = draw.normal(batch, grid * size, grid * size, channels, dtype=dtype)
    return jax.value_and_grad(loss), (weights, x, draw.whole(0, classes, batch))


@program()
def mixer_block(draw: Draw):
    tokens, width, batch = draw.size(1, 40), draw.size(1, 40), draw.size(1, 4)
    dtype = draw.float_type()

    def function(x, t1, t2, c1, c2):
        x = x + (jax.nn.gelu(x.swapaxes(1, 2) @ t1) @ t2).swapaxes(1, 2)
        return x + jax.nn.gelu(x @ c1) @ c2

    sizes = (tokens, 2 * tokens), (2 * tokens, tokens), (width, 3 * width), (3 * width, width)
    weights = (draw.normal(*one, dtype=dtype, scale=0.2) for one in sizes)
    return function, (draw.normal(batch, tokens, width, dtype=dtype), *weights)


@program()
def matrix_factorisation_step(draw: Draw):
    """Rows of two tables by indices, updated in place with donated tables."""
    users, items, width, batch = (draw.size(1, high) for high in (60, 60, 24, 40))

    def step(tables, i, j, y):
        def loss(tables):
            error = jnp.sum(tables[0][i] * tables[1][j], -1) - y
            return jnp.mean(error**2)

        value, gradients = jax.value_and_grad(loss)(tables)
        return value, jax.tree.map(lambda t, g: t - 0.1 * g, tables, gradients)

    tables = [draw.normal(count, width) for count in (users, items)]
    arguments = draw.whole(0, users, batch), draw.whole(0, items, batch), draw.normal(batch)
    return jax.jit(step, donate_argnums=0), (tables, *arguments)


@program()
def perceptron_with_hidden_layers_returned(draw: Draw):
    rows, width, layers = draw.size(1, 300), draw.size(1, 40), draw.size(1, 4)
    dtype = draw.float_type()
    act = draw.pick((jnp.tanh, jax.nn.relu, jax.nn.gelu, jax.nn.silu))
    sizes = [width, *(draw.size(1, 40) for _ in range(layers))]

    def function(x, weights):
        found = []
        for w, b in weights:
            x = act(x @ w + b)
            found.append(x)
        return found

    weights = [
        (draw.normal(a, b, dtype=dtype, scale=0.3), draw.normal(b, dtype=dtype))
        for a, b in itertools.pairwise(sizes)
    ]
    return function, (draw.normal(rows, width, dtype=dtype), weights)


@program(slack=5)
def generative_adversarial_step(draw: Draw):
    """Gradients of two losses that share a forward pass, one of them stopped."""
    rows, width, hidden = draw.size(1, 40), draw.size(1, 20), draw.size(1, 30)

    def function(g, d, z, x):
        def scores(d, x):
            return jnp.tanh(x @ d[0]) @ d[1]

        def judge(d):
            made = jax.lax.stop_gradient(jnp.tanh(z @ g))
            return jnp.mean(jax.nn.softplus(scores(d, made)) + jax.nn.softplus(-scores(d, x)))

        def forge(g):
            return jnp.mean(jax.nn.softplus(-scores(d, jnp.tanh(z @ g))))

        return jax.grad(judge)(d), jax.grad(forge)(g)

    d = draw.normal(width, hidden, scale=0.3), draw.normal(hidden, scale=0.3)
    return function, (draw.normal(9, width), d, draw.normal(rows, 9), draw.normal(rows, width))
