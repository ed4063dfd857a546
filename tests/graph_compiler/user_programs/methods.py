"""Parts of methods: optimisers, losses, augmentations, policies."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from user_programs.drawing import Draw, program


@program(slack=20)
def muon(draw: Draw):
    """A step with momentum for a matrix, Adam for a vector."""
    rows, columns = draw.size(2, 40), draw.size(2, 40)

    def orthogonal(g):
        tall = g.shape[0] > g.shape[1]
        x = (g.T if tall else g) / (jnp.linalg.norm(g) + 1e-3)
        for _ in range(3):
            y = x @ x.T
            x = 3.4445 * x + (-4.775 * y + 2.0315 * y @ y) @ x
        return x.T if tall else x

    def function(w, b, momentum, x, y):
        def loss(w, b):
            return jnp.mean((jnp.tanh(x @ w) + b - y) ** 2)

        gw, gb = jax.grad(loss, argnums=(0, 1))(w, b)
        momentum = 0.95 * momentum + gw
        scale = max(1, rows / columns) ** 0.5
        return w - 0.02 * scale * orthogonal(gw + 0.95 * momentum), b - 0.01 * gb, momentum

    batch = draw.size(1, 20)
    return function, (
        draw.normal(rows, columns, scale=0.3),
        draw.normal(columns),
        draw.normal(rows, columns),
        draw.normal(batch, rows),
        draw.normal(batch, columns),
    )


@program(slack=10)
def adafactor(draw: Draw):
    """Second moments as a row and a column, for each array of a tree."""
    shapes = [(draw.size(1, 40), draw.size(1, 40)), (draw.size(1, 50),)]

    def function(weights, gradients, step):
        decay = 1 - (step + 1.0) ** -0.8
        found = []
        for w, g in zip(weights, gradients):
            square = g * g + 1e-6
            if g.ndim == 2:
                rows, columns = square.mean(1) * (1 - decay), square.mean(0) * (1 - decay)
                spread = jnp.outer(rows, columns) / jnp.mean(rows)
            else:
                spread = square * (1 - decay)
            update = g * jax.lax.rsqrt(spread + 1e-4)
            update = update / jnp.maximum(1.0, jnp.sqrt(jnp.mean(update**2)))
            found.append(w - 0.01 * jnp.maximum(1e-3, jnp.sqrt(jnp.mean(w * w))) * update)
        return found

    trees = [[draw.normal(*shape) for shape in shapes] for _ in range(2)]
    return function, (*trees, np.float32(draw.size(1, 99)))


@program(slack=20)
def limited_memory(draw: Draw):
    """L-BFGS: two loops over a ring of differences, newest last."""
    size, memory = draw.size(1, 60), draw.size(1, 6)

    def function(g, s, y, newest):
        order = (newest + 1 + jnp.arange(memory)) % memory
        s, y = s[order], y[order]
        rho = 1 / (jnp.sum(s * y, 1) + 1e-2)

        def back(q, one):
            s, y, r = one
            a = r * (s @ q)
            return q - a * y, a

        q, a = jax.lax.scan(back, g, (s, y, rho), reverse=True)

        def forth(r, one):
            s, y, rho, a = one
            return r + s * (a - rho * (y @ r)), None

        return jax.lax.scan(forth, q * 0.5, (s, y, rho, a))[0]

    s = draw.normal(memory, size)
    return function, (draw.normal(size), s, s + 0.1 * draw.normal(memory, size), draw.whole(0, 6))


@program(slack=5)
def losses(draw: Draw):
    rows, classes = draw.size(1, 40), draw.size(2, 30)
    dtype = draw.float_type()

    def function(logits, labels, real):
        chosen = jax.nn.one_hot(labels, classes, dtype=logits.dtype)
        logs = jax.nn.log_softmax(logits)
        p = jnp.exp(logs)
        smooth = chosen * 0.9 + 0.1 / classes
        margin = logits - jnp.sum(logits * chosen, 1, keepdims=True) + 1
        apart = logits - real
        return (
            -jnp.mean(jnp.sum(smooth * logs, 1)),
            -jnp.mean(jnp.sum(chosen * (1 - p) ** 2 * logs, 1)),
            jnp.mean(jnp.sum(jax.nn.relu(margin) * (1 - chosen), 1)),
            jnp.mean(jnp.where(jnp.abs(apart) < 1, apart**2 / 2, jnp.abs(apart) - 0.5)),
            jnp.mean(jax.nn.softplus(logits) - logits * chosen),
            1 - 2 * jnp.sum(p * chosen) / (jnp.sum(p) + jnp.sum(chosen)),
            jnp.sum(jax.scipy.special.rel_entr(p, jax.nn.softmax(real))),
            jnp.mean(jnp.log(jnp.cosh(apart / 4))),
        )

    return function, (
        draw.normal(rows, classes, dtype=dtype),
        draw.whole(0, classes, rows),
        draw.normal(rows, classes, dtype=dtype),
    )


@program(slack=10)
def contrastive_gradient(draw: Draw):
    """CLIP's loss and its gradients, the temperature's too."""
    batch, width = draw.size(2, 40), draw.size(1, 40)

    def function(a, b, scale):
        a = a / jnp.linalg.norm(a + 1e-3, axis=1, keepdims=True)
        b = b / jnp.linalg.norm(b + 1e-3, axis=1, keepdims=True)
        logits = jnp.exp(scale) * a @ b.T
        rows, columns = jax.nn.log_softmax(logits, 1), jax.nn.log_softmax(logits, 0)
        return -jnp.mean(jnp.diagonal(rows) + jnp.diagonal(columns)) / 2

    return jax.value_and_grad(function, argnums=(0, 1, 2)), (
        draw.normal(batch, width),
        draw.normal(batch, width),
        np.float32(1.5),
    )


@program(slack=10)
def batch_norm_step(draw: Draw):
    """Training with running statistics, which a step gives back beside gradients."""
    batch, size, channels = draw.size(2, 6), draw.size(1, 8), draw.size(1, 12)

    def forward(scale, shift, mean, variance, x):
        m, v = jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2))
        y = (x - m) * jax.lax.rsqrt(v + 1e-2) * scale + shift
        return jnp.mean(jax.nn.gelu(y) ** 2), (0.9 * mean + 0.1 * m, 0.9 * variance + 0.1 * v)

    gradient = jax.value_and_grad(forward, argnums=(0, 1, 4), has_aux=True)
    vectors = [draw.uniform(channels, low=0.5) for _ in range(4)]
    return gradient, (*vectors, draw.normal(batch, size, size, channels))


@program()
def augmented_images(draw: Draw):
    """Each image cropped, turned over, made brighter, and a square of it blanked, by its own
    numbers."""
    batch, size, crop = draw.size(1, 6), draw.size(6, 20), draw.size(2, 6)

    def one(image, at, flip, gain, hole):
        part = jax.lax.dynamic_slice(image, (at[0], at[1], 0), (crop, crop, 3))
        part = jnp.where(flip, part[:, ::-1], part)
        part = jnp.clip((part - 0.5) * gain + 0.5, 0, 1)
        rows, columns = jnp.arange(crop)[:, None], jnp.arange(crop)[None]
        inside = (abs(rows - hole[0]) < 2) & (abs(columns - hole[1]) < 2)
        return jnp.where(inside[..., None], 0.5, part)

    return jax.vmap(one), (
        draw.uniform(batch, size, size, 3),
        draw.whole(-2, size, batch, 2),
        draw.flags(batch),
        draw.uniform(batch, low=0.5),
        draw.whole(0, crop, batch, 2),
    )


@program(slack=3)
def mixed_images(draw: Draw):
    """Mixup and CutMix with labels, by a permutation and boxes."""
    batch, size, classes = draw.size(2, 8), draw.size(2, 12), draw.size(2, 9)

    def function(x, y, order, share, box):
        labels = jax.nn.one_hot(y, classes)
        other, others = x[order], labels[order]
        mixed = share * x + (1 - share) * other
        rows, columns = jnp.arange(size)[:, None], jnp.arange(size)
        inside = (rows >= box[0]) & (rows < box[1]) & (columns >= box[2]) & (columns < box[3])
        cut = jnp.where(inside[None, :, :, None], other, x)
        kept = 1 - jnp.mean(inside.astype(jnp.float32))
        return (
            mixed,
            share * labels + (1 - share) * others,
            cut,
            kept * labels + (1 - kept) * others,
        )

    return function, (
        draw.normal(batch, size, size, 3),
        draw.whole(0, classes, batch),
        draw.random.permutation(batch).astype("int32"),
        np.float32(0.3),
        np.sort(draw.whole(0, size + 1, 2, 2), 1).reshape(-1),
    )


@program(slack=5)
def policy_gradient(draw: Draw):
    """PPO's clipped loss with entropy, and its gradient."""
    batch, actions = draw.size(1, 40), draw.size(2, 12)

    def function(logits, values, action, old, advantage, target):
        logs = jax.nn.log_softmax(logits)
        own = jnp.take_along_axis(logs, action[:, None], 1)[:, 0]
        ratio = jnp.exp(own - old)
        advantage = (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-2)
        clipped = jnp.clip(ratio, 0.8, 1.2) * advantage
        policy = -jnp.mean(jnp.minimum(ratio * advantage, clipped))
        entropy = -jnp.mean(jnp.sum(jnp.exp(logs) * logs, 1))
        return policy + 0.5 * jnp.mean((values - target) ** 2) - 0.01 * entropy

    return jax.value_and_grad(function, argnums=(0, 1)), (
        draw.normal(batch, actions),
        draw.normal(batch),
        draw.whole(0, actions, batch),
        draw.normal(batch, scale=0.1) - 2,
        draw.normal(batch),
        draw.normal(batch),
    )


@program()
def learned_table(draw: Draw):
    """Q-learning: a table whose entries a scan reads and writes, by exact numbers."""
    states, actions, steps = draw.size(1, 20), draw.size(1, 5), draw.size(1, 12)

    def function(table, path, action, reward):
        def step(table, one):
            s, a, r, n = one
            wanted = r + 0.5 * jnp.max(table[n])
            error = wanted - table[s, a]
            return table.at[s, a].add(0.5 * error), error

        return jax.lax.scan(step, table, (path[:-1], action, reward, path[1:]))

    return function, (
        draw.normal(states, actions),
        draw.whole(0, states, steps + 1),
        draw.whole(0, actions, steps),
        draw.normal(steps),
    )


@program(slack=10)
def variational_autoencoder(draw: Draw):
    """Gradients through noise that a key gives."""
    batch, width, hidden = draw.size(1, 20), draw.size(1, 30), draw.size(1, 12)

    def function(weights, x, key):
        encode, decode = weights
        both = x @ encode
        mean, spread = jnp.split(both, 2, axis=1)
        z = mean + jnp.exp(spread / 2) * jax.random.normal(key, mean.shape)
        again = jax.nn.sigmoid(z @ decode)
        apart = -0.5 * jnp.sum(1 + spread - mean**2 - jnp.exp(spread), 1)
        return jnp.mean(jnp.sum((again - x) ** 2, 1) + apart)

    return jax.value_and_grad(function), (
        (draw.normal(width, 2 * hidden, scale=0.1), draw.normal(hidden, width, scale=0.3)),
        draw.uniform(batch, width),
        draw.bits(2, dtype="uint32"),
    )
