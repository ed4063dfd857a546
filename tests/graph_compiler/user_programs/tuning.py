"""Adapting a model: optimisers by layers and subspaces, adapters, preferences, smaller weights."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from user_programs.drawing import Draw, program


def _tree(draw: Draw, count: int = 1):
    """Trees of weights of one form: two matrices, a vector and a number."""
    shapes = [(draw.size(1, 30), draw.size(1, 30)), (draw.size(1, 20), draw.size(1, 40))]
    shapes += [(draw.size(1, 50),), ()]
    return [[draw.normal(*shape).astype(np.float32) for shape in shapes] for _ in range(count)]


@program(slack=10)
def layers_by_their_norms(draw: Draw):
    """LAMB and LARS: a step of Adam, and one of momentum, scaled to the norm of each layer."""

    def function(weights, gradients, first, second, count):
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)

        def ratio(w, step):
            above, below = jnp.sqrt(jnp.sum(w * w)), jnp.sqrt(jnp.sum(step * step))
            return jnp.where((above > 0) & (below > 0), jnp.clip(above / below, 0.01, 10.0), 1.0)

        def lamb(w, m, v):
            step = m / (1 - 0.9**count) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-4) + 0.01 * w
            return w - 0.01 * ratio(w, step) * step

        def lars(w, g):
            step = g + 1e-4 * w
            return w - 0.1 * 0.001 * ratio(w, step) * step

        return (
            jax.tree.map(lamb, weights, first, second),
            jax.tree.map(lars, weights, gradients),
            (first, second),
        )

    weights, gradients, first, second = _tree(draw, 4)
    second = [np.abs(v) + np.float32(0.1) for v in second]
    return function, (weights, gradients, first, second, np.float32(draw.size(1, 50)))


@program(slack=20)
def momenta_of_differences(draw: Draw):
    """Adan and AdEMAMix: averages of gradients, of their differences, and a slow one beside."""

    def function(weights, gradients, before, state, count):
        m, d, n, slow = state
        change = jax.tree.map(jnp.subtract, gradients, before)
        m = jax.tree.map(lambda m, g: 0.98 * m + 0.02 * g, m, gradients)
        d = jax.tree.map(lambda d, c: 0.92 * d + 0.08 * c, d, change)
        n = jax.tree.map(
            lambda n, g, c: 0.99 * n + 0.01 * (g + 0.92 * c) ** 2, n, gradients, change
        )
        alpha = jnp.minimum(count / 100, 1.0) * 5
        slow = jax.tree.map(lambda s, g: s + (1 - 0.999) * (g - s), slow, gradients)

        def step(w, m, d, n, s):
            eta = 0.01 / (jnp.sqrt(n) + 1e-2)
            return (w - eta * (m + 0.92 * d + alpha * s)) / (1 + 0.01 * 0.02)

        return jax.tree.map(step, weights, m, d, n, slow), (m, d, n, slow)

    weights, gradients, before, m, d, n, slow = _tree(draw, 7)
    n = [np.abs(v) + np.float32(0.1) for v in n]
    return function, (weights, gradients, before, (m, d, n, slow), np.float32(draw.size(1, 90)))


@program(slack=20)
def adam_in_a_subspace(draw: Draw):
    """GaLore: Adam of gradients projected to few directions, which an iteration keeps up."""
    rows, columns, rank = draw.size(4, 40), draw.size(4, 40), draw.size(1, 4)

    def function(w, g, basis, m, v, renew):
        def renewed(basis):
            basis = g @ (g.T @ basis)
            kept = []
            for at in range(rank):
                one = basis[:, at]
                for other in kept:
                    one = one - other * (other @ one)
                kept.append(one / (jnp.linalg.norm(one) + 1e-6))
            return jnp.stack(kept, 1)

        basis = jax.lax.cond(renew, renewed, lambda basis: basis, basis)
        small = basis.T @ g
        m, v = 0.9 * m + 0.1 * small, 0.99 * v + 0.01 * small**2
        return w - 0.01 * basis @ (m / (jnp.sqrt(v) + 1e-2)), basis, m, v

    basis = np.linalg.qr(draw.normal(rows, rank))[0].astype(np.float32)
    return function, (
        *(draw.normal(rows, columns), draw.normal(rows, columns)),
        *(basis, draw.normal(rank, columns), draw.uniform(rank, columns)),
        np.bool_(draw.chance(0.6)),
    )


@program(slack=20)
def sharpness_aware_step(draw: Draw):
    """Gradients at the weights moved uphill, and slow weights every other step."""
    batch, width, classes = draw.size(1, 30), draw.size(1, 30), draw.size(2, 10)

    def function(w, slow, x, y, count):
        def loss(w):
            hidden = jax.nn.relu(x @ w[0])
            logits = hidden @ w[1]
            return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1))

        g = jax.grad(loss)(w)
        norm = jnp.sqrt(sum(jnp.sum(one**2) for one in g))
        value, g = jax.value_and_grad(loss)([a + 0.05 * b / (norm + 1e-3) for a, b in zip(w, g)])
        g = [one - one.mean(0) for one in g]
        w = [a - 0.1 * b for a, b in zip(w, g)]
        slow = [jnp.where(count % 2 == 0, s + 0.5 * (a - s), s) for a, s in zip(w, slow)]
        w = [jnp.where(count % 2 == 0, s, a) for a, s in zip(w, slow)]
        return value, w, slow

    def weights():
        return [draw.normal(width, 16, scale=0.3), draw.normal(16, classes, scale=0.3)]

    x, y = draw.normal(batch, width), draw.whole(0, classes, batch)
    return function, (weights(), weights(), x, y, draw.whole(0, 9))


@program(slack=20)
def rotated_second_moments(draw: Draw):
    """SOAP: Adam in the bases of both sides' statistics, which one step of an iteration follows."""
    rows, columns = draw.size(2, 12), draw.size(2, 12)

    def function(w, g, left, right, turn_left, turn_right, m, v):
        left, right = 0.95 * left + 0.05 * g @ g.T, 0.95 * right + 0.05 * g.T @ g
        turned = turn_left.T @ g @ turn_right
        v = 0.95 * v + 0.05 * turned**2
        m = 0.95 * m + 0.05 * g
        step = (turn_left.T @ m @ turn_right) / (jnp.sqrt(v) + 1e-2)
        step = turn_left @ step @ turn_right.T

        def followed(statistics, turn):
            q, r = jnp.linalg.qr(statistics @ turn)
            return q * jnp.where(jnp.diagonal(r) < 0, -1.0, 1.0)

        return w - 0.01 * step, followed(left, turn_left), followed(right, turn_right), m, v

    def positive(size):
        a = draw.normal(size, 2 * size)
        return (a @ a.T / (2 * size) + np.eye(size)).astype(np.float32)

    def turn(size):
        return np.linalg.qr(draw.normal(size, size))[0].astype(np.float32)

    w, g, m = (draw.normal(rows, columns) for _ in range(3))
    return function, (
        *(w, g, positive(rows), positive(columns), turn(rows), turn(columns), m),
        draw.uniform(rows, columns),
    )


@program(slack=20)
def adapters_of_directions(draw: Draw):
    """DoRA: low-rank changes of a weight's direction, its columns' lengths, with dropout."""
    batch, inputs, outputs, rank = (draw.size(1, n) for n in (20, 40, 40, 5))

    def function(x, target, frozen, tuned, keep):
        def loss(tuned):
            a, b, lengths = tuned
            whole = frozen + 2.0 * a @ b
            norm = jax.lax.stop_gradient(jnp.sqrt(jnp.sum(whole**2, 0) + 1e-6))
            dropped = jnp.where(keep, x, 0) / 0.8
            base = x @ frozen
            y = base + (lengths / norm - 1) * base + lengths / norm * (2.0 * dropped @ a @ b)
            return jnp.mean((y - target) ** 2)

        return jax.value_and_grad(loss)(tuned)

    tuned = (
        draw.normal(inputs, rank, scale=0.3),
        draw.normal(rank, outputs, scale=0.1),
        draw.uniform(outputs) + np.float32(0.5),
    )
    return function, (
        *(draw.normal(batch, inputs), draw.normal(batch, outputs)),
        *(draw.normal(inputs, outputs, scale=0.3), tuned, draw.flags(batch, inputs, share=0.8)),
    )


@program(slack=10)
def preferred_answers(draw: Draw):
    """DPO, ORPO and KTO: log-probabilities of two answers, against a reference, with gradients."""
    pairs, length, vocabulary, width = (draw.size(2, n) for n in (5, 12, 50, 12))

    def function(hidden, head, reference, labels, mask):
        def of_tokens(head):
            logits = jax.nn.log_softmax(hidden @ head)
            picked = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
            return jnp.where(mask, picked, 0).sum(-1)

        def loss(head):
            logs, wanted = of_tokens(head), jax.lax.stop_gradient(of_tokens(reference))
            margin = logs - wanted
            dpo = -jax.nn.log_sigmoid(0.1 * (margin[0] - margin[1])).mean()
            mean = logs / jnp.maximum(mask.sum(-1), 1)
            odds = mean - jnp.log1p(-jnp.exp(jnp.minimum(mean, -1e-2)))
            orpo = -jax.nn.log_sigmoid(odds[0] - odds[1]).mean() - mean[0].mean()
            zero = jax.lax.stop_gradient(jnp.maximum(margin.mean(), 0))
            kto = jax.nn.sigmoid(zero - 0.1 * margin[0]) + jax.nn.sigmoid(0.1 * margin[1] - zero)
            return dpo + 0.1 * orpo + kto.mean(), (margin[0] > margin[1]).mean()

        return jax.value_and_grad(loss, has_aux=True)(head)

    shape = 2, pairs, length
    return function, (
        draw.normal(*shape, width, scale=0.5),
        *(draw.normal(width, vocabulary, scale=0.5) for _ in range(2)),
        *(draw.whole(0, vocabulary, *shape), draw.flags(*shape, share=0.8)),
    )


@program(slack=10)
def rewards_of_a_group(draw: Draw):
    """GRPO: rewards normalised over a group's answers, clipped ratios, a penalty of divergence."""
    prompts, group, length, vocabulary = (draw.size(2, n) for n in (4, 6, 12, 40))

    def function(logits, old, reference, tokens, ends, rewards):
        mask = jnp.arange(length) < ends[..., None]
        mean, deviation = rewards.mean(1, keepdims=True), rewards.std(1, keepdims=True)
        better = ((rewards - mean) / (deviation + 1e-2))[..., None]

        def of(logits):
            picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], -1)
            return picked[..., 0]

        def loss(logits):
            now, apart = of(logits), of(reference) - of(logits)
            ratio = jnp.exp(now - old)
            gain = jnp.minimum(ratio * better, jnp.clip(ratio, 0.8, 1.28) * better)
            penalty = jnp.exp(apart) - apart - 1
            value = jnp.where(mask, gain - 0.04 * penalty, 0).sum() / mask.sum()
            return -value, jnp.where(mask, jnp.abs(ratio - 1) > 0.2, False).mean()

        return jax.value_and_grad(loss, has_aux=True)(logits)

    shape = prompts, group, length
    return function, (
        draw.normal(*shape, vocabulary),
        draw.normal(*shape, scale=0.5) - np.float32(3),
        draw.normal(*shape, vocabulary),
        *(draw.whole(0, vocabulary, *shape), draw.whole(1, length + 1, prompts, group)),
        draw.uniform(prompts, group),
    )


@program(slack=30)
def weights_rounded_with_corrections(draw: Draw):
    """GPTQ: columns rounded one after another, what is lost goes to the columns that follow."""
    rows, columns, samples = draw.size(1, 20), draw.size(2, 14), 40

    def function(w, x):
        hessian = x.T @ x / samples + 0.5 * jnp.eye(columns)
        inverse = jnp.linalg.inv(hessian)
        upper = jnp.linalg.cholesky(inverse).T
        scale = jnp.max(jnp.abs(w), axis=1) / 7

        def step(w, at):
            # A soft step: where a number is rounded to would depend on its error.
            column = w[:, at] / scale
            soft = scale * (column - 0.1 * jnp.sin(2 * jnp.pi * column))
            lost = (w[:, at] - soft) / upper[at, at]
            after = jnp.arange(columns) > at
            return w - jnp.where(after, lost[:, None] * upper[at], 0), soft

        return jax.lax.scan(step, w, jnp.arange(columns)), inverse

    return function, (draw.normal(rows, columns), draw.normal(samples, columns))


@program(slack=5)
def codebook_of_four_bits(draw: Draw):
    """NF4: packed codes, a table of 16 values, scales of blocks that are themselves quantised."""
    rows, block, blocks, batch = (
        draw.size(1, 30),
        2 * draw.size(1, 16),
        draw.size(1, 6),
        draw.size(1, 9),
    )

    def function(packed, table, codes, second, offset, x):
        low, high = packed & 15, packed >> 4
        index = jnp.stack([high, low], -1).reshape(rows, blocks, block)
        scales = codes.astype(jnp.float32) * second + offset
        w = (table[index] * scales[..., None]).reshape(rows, blocks * block).astype(x.dtype)
        return jnp.dot(x, w.T, preferred_element_type=jnp.float32)

    return function, (
        draw.whole(0, 256, rows, blocks * block // 2, dtype=np.uint8),
        np.sort(draw.normal(16)),
        draw.whole(-127, 128, rows, blocks, dtype=np.int8),
        *(np.float32(0.01), np.float32(1.5)),
        draw.normal(batch, blocks * block, dtype=draw.float_type()),
    )


@program(slack=5, refusals=("documented-refusal",))
def eight_bits_by_blocks(draw: Draw):
    """fp8 with a scale for each block of a weight and each strip of a token, summed in fp32."""
    block, down, across, batch = (
        draw.size(2, 20),
        draw.size(1, 4),
        draw.size(1, 4),
        draw.size(1, 12),
    )

    def function(x, w, w_scales):
        strips = x.reshape(batch, down, block)
        top = jnp.max(jnp.abs(strips), -1, keepdims=True)
        scale = jnp.exp2(jnp.ceil(jnp.log2(jnp.maximum(top, 1e-4) / 224)) + 1)
        small = (strips / scale).astype(jnp.float8_e4m3fn)
        blocks = w.reshape(down, block, across, block)
        parts = jnp.einsum(
            "bik,ikjn->bijn",
            small.astype(jnp.bfloat16),
            blocks.astype(jnp.bfloat16),
            preferred_element_type=jnp.float32,
        )
        parts = parts * scale[..., None] * w_scales[:, :, None]
        return parts.sum(1).reshape(batch, across * block)

    w = np.clip(draw.normal(down * block, across * block), -200, 200)
    return function, (
        draw.normal(batch, down * block),
        w.astype(ml_dtypes.float8_e4m3fn),
        draw.uniform(down, across),
    )


@program(slack=10)
def pruned_and_grown(draw: Draw):
    """Two of four kept, the smallest weights dropped, where gradients are largest grown again."""
    rows, quarter, batch = draw.size(1, 20), draw.size(1, 10), draw.size(1, 10)
    columns = 4 * quarter

    def function(w, mask, score, x):
        groups = jnp.abs(w).reshape(rows, quarter, 4)
        order = jnp.argsort(jnp.argsort(-groups, -1), -1)
        two = (order < 2).reshape(rows, columns)
        gradient = jax.grad(lambda w: jnp.sum(jnp.sin(x @ (w * two).T)))(w)
        count = max(1, rows * columns // 10)
        flat = jnp.where(mask, jnp.abs(w), jnp.inf).ravel()
        _, worst = jax.lax.top_k(-flat, count)
        mask = mask.ravel().at[worst].set(False)
        _, best = jax.lax.top_k(jnp.where(mask, -jnp.inf, score.ravel()), count)
        mask = mask.at[best].set(True).reshape(w.shape)
        return two, gradient, mask, jnp.where(mask, w, 0)

    w, score = draw.distinct(rows, columns), draw.distinct(rows, columns)
    w = np.where(w == 0, np.float32(0.0625), np.float32(1) * w)
    w = np.abs(w) * np.float32(0.02) + draw.distinct(rows, columns) * np.float32(1e-4)
    return function, (w, draw.flags(rows, columns), np.abs(score), draw.normal(batch, columns))
