"""Steps of training: optimisers, clipping, accumulated gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from user_programs.drawing import Draw, program


def _network(draw: Draw, dtype):
    """A two-layer network's parameters, a batch and labels."""
    rows, width, hidden, classes = (draw.size(1, high) for high in (40, 50, 70, 20))
    parameters = {
        "w1": draw.normal(width, hidden, dtype=dtype, scale=0.3),
        "b1": draw.normal(hidden, dtype=dtype, scale=0.1),
        "w2": draw.normal(hidden, classes, dtype=dtype, scale=0.3),
        "b2": draw.normal(classes, dtype=dtype, scale=0.1),
    }
    return parameters, draw.normal(rows, width, dtype=dtype), draw.whole(0, classes, rows)


def _loss(parameters, x, labels):
    hidden = jax.nn.gelu(x @ parameters["w1"] + parameters["b1"])
    logits = (hidden @ parameters["w2"] + parameters["b2"]).astype(jnp.float32)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
    return -chosen.mean()


@program()
def sgd_momentum(draw: Draw):
    parameters, x, labels = _network(draw, draw.float_type())
    velocity = jax.tree.map(lambda one: one * 0.5, parameters)

    def step(parameters, velocity, x, labels):
        loss, gradients = jax.value_and_grad(_loss)(parameters, x, labels)
        velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, gradients)
        parameters = jax.tree.map(lambda p, v: p - 0.1 * v, parameters, velocity)
        return loss, parameters, velocity

    return step, (parameters, velocity, x, labels)


@program()
def adam(draw: Draw):
    parameters, x, labels = _network(draw, "float32")
    first = jax.tree.map(lambda one: draw.normal(*one.shape, scale=0.1), parameters)
    second = jax.tree.map(lambda one: draw.uniform(*one.shape, low=0.2), parameters)

    def step(parameters, first, second, count, x, labels):
        gradients = jax.grad(_loss)(parameters, x, labels)
        count = count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
        scale = jnp.sqrt(1 - 0.999 ** count.astype(jnp.float32)) / (1 - 0.9**count)
        parameters = jax.tree.map(
            lambda p, m, v: p - 1e-2 * (scale * m / (jnp.sqrt(v) + 1e-8) + 0.01 * p),
            parameters,
            first,
            second,
        )
        return parameters, first, second, count

    return step, (parameters, first, second, draw.whole(0, 50), x, labels)


@program()
def lion(draw: Draw):
    """The sign of a distinct momentum, so that no rounding turns it."""
    shape = (draw.size(1, 90), draw.size(1, 90))

    def step(weights, momentum, gradient):
        update = jnp.sign(0.875 * momentum + 0.125 * gradient)
        return weights - 1e-2 * (update + 0.1 * weights), 0.96875 * momentum + 0.03125 * gradient

    return step, (
        draw.normal(*shape),
        draw.distinct(*shape),
        draw.whole(-4, 5, *shape).astype("float32"),
    )


@program()
def clipped_gradients(draw: Draw):
    parameters, x, labels = _network(draw, "float32")
    limit = draw.pick((1e-3, 0.1, 10.0))

    def step(parameters, x, labels):
        gradients = jax.grad(_loss)(parameters, x, labels)
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradients)))
        factor = jnp.minimum(1.0, limit / (norm + 1e-6))
        return norm, jax.tree.map(lambda p, g: p - factor * g, parameters, gradients)

    return step, (parameters, x, labels)


@program()
def accumulated_gradients(draw: Draw):
    """Micro-batches by a scan, and a loss scale that halves where a gradient is not finite."""
    parameters, x, labels = _network(draw, "float32")
    parts = draw.size(2, 5)
    x, labels = jnp.stack([x] * parts), jnp.stack([labels] * parts)
    x = x * jnp.arange(1.0, parts + 1)[:, None, None]

    def step(parameters, x, labels, scale):
        def one(total, batch):
            gradients = jax.grad(lambda p: _loss(p, *batch) * scale)(parameters)
            return jax.tree.map(jnp.add, total, gradients), None

        zeros = jax.tree.map(jnp.zeros_like, parameters)
        total, _ = jax.lax.scan(one, zeros, (x, labels))
        finite = jnp.all(jnp.stack([jnp.isfinite(g).all() for g in jax.tree.leaves(total)]))
        scale = jnp.where(finite, scale * 2, scale / 2)
        return jax.lax.cond(
            finite,
            lambda: jax.tree.map(lambda p, g: p - 1e-4 * g, parameters, total),
            lambda: parameters,
        ), scale

    scale = draw.pick((8.0, 3e38))
    return step, (parameters, x, labels, jnp.float32(scale))


@program()
def rematerialised_blocks(draw: Draw):
    rows, width, layers = draw.size(1, 40), draw.size(1, 48), draw.size(1, 5)

    def block(x, weights):
        return x + jnp.tanh(x @ weights[0]) @ weights[1]

    def loss(weights, x):
        body = jax.checkpoint(lambda x, w: (block(x, w), None))
        x, _ = jax.lax.scan(body, x, weights)
        return jnp.sum(x * x)

    weights = draw.normal(layers, 2, width, width, scale=width**-0.5)
    return jax.grad(loss, argnums=(0, 1)), (weights, draw.normal(rows, width))


@program()
def custom_gradient(draw: Draw):
    """Straight-through rounding and a clipped backward pass."""

    @jax.custom_vjp
    def rounded(x, scale):
        return jnp.round(x / scale) * scale

    def forward(x, scale):
        return rounded(x, scale), (x, scale)

    def backward(saved, gradient):
        x, scale = saved
        inside = jnp.abs(x) < 4 * scale
        return jnp.where(inside, jnp.clip(gradient, -1, 1), 0), None

    rounded.defvjp(forward, backward)

    def function(x, w, scale):
        return jax.value_and_grad(lambda w: jnp.sum(jnp.sin(x @ rounded(w, scale))))(w)

    rows, width, columns = draw.size(1, 40), draw.size(1, 40), draw.size(1, 40)
    w = draw.distinct(width, columns) / (width * columns)
    return function, (draw.normal(rows, width), w, jnp.float32(0.03))


@program()
def weight_average(draw: Draw):
    """Weights averaged over steps, and a cosine schedule with warm-up."""
    shape = (draw.size(1, 130), draw.size(1, 70))
    dtype = draw.float_type()

    def function(weights, average, step):
        progress = step.astype(jnp.float32) / 100
        rate = jnp.where(progress < 0.1, progress * 10, 0.5 * (1 + jnp.cos(jnp.pi * progress)))
        decay = jnp.minimum(0.99, (1 + step) / (10 + step)).astype(average.dtype)
        return rate, average * decay + weights.astype(average.dtype) * (1 - decay)

    return function, (draw.normal(*shape, dtype=dtype), draw.normal(*shape), draw.whole(0, 100))


@program()
def per_example_gradients(draw: Draw):
    """Differential privacy: gradients of single rows, clipped, summed."""
    parameters, x, labels = _network(draw, "float32")

    def function(parameters, x, labels):
        one = lambda x, label: jax.grad(_loss)(parameters, x[None], label[None])  # noqa: E731
        gradients = jax.vmap(one)(x, labels)
        squares = [jnp.sum(g * g, tuple(range(1, g.ndim))) for g in jax.tree.leaves(gradients)]
        factor = jnp.minimum(1, 0.5 * jax.lax.rsqrt(sum(squares)))
        return jax.tree.map(lambda g: jnp.einsum("b,b...->...", factor, g), gradients)

    return function, (parameters, x, labels)


@program(slack=10)
def hessian_vector_product(draw: Draw):
    parameters, x, labels = _network(draw, "float32")
    direction = jax.tree.map(lambda one: draw.normal(*one.shape), parameters)

    def function(parameters, direction, x, labels):
        gradient = jax.grad(lambda p: _loss(p, x, labels))
        return jax.jvp(gradient, (parameters,), (direction,))[1]

    return function, (parameters, direction, x, labels)


@program(slack=10)
def low_rank_adapter(draw: Draw):
    dtype = draw.float_type()
    rows, width, rank, out = draw.size(1, 70), draw.size(2, 90), draw.size(1, 8), draw.size(1, 70)

    def loss(adapter, frozen, x):
        y = x @ frozen + (x @ adapter[0]) @ adapter[1] * 0.5
        return jnp.mean(jnp.square(y.astype(jnp.float32)))

    adapter = draw.normal(width, rank, dtype=dtype), draw.normal(rank, out, dtype=dtype)
    frozen = draw.normal(width, out, dtype=dtype, scale=0.1)
    return jax.value_and_grad(loss), (adapter, frozen, draw.normal(rows, width, dtype=dtype))
