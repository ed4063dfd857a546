"""Reinforcement learning: returns, targets, rollouts of environments."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from user_programs.drawing import Draw, program


@program(slack=20)
def generalised_advantages(draw: Draw):
    """GAE by a scan from the end, and the clipped loss of PPO with its gradient."""
    steps, actors, actions = draw.size(1, 20), draw.size(1, 16), draw.size(2, 8)

    def function(logits, old, chosen, rewards, values, done):
        def back(later, one):
            reward, value, following, over = one
            open = 1.0 - over
            delta = reward + 0.99 * following * open - value
            later = delta + 0.99 * 0.95 * open * later
            return later, later

        following = values[1:]
        parts = rewards, values[:-1], following, done.astype(jnp.float32)
        _, advantages = jax.lax.scan(back, jnp.zeros(actors), parts, reverse=True)

        def loss(logits):
            logs = jax.nn.log_softmax(logits)
            own = jnp.take_along_axis(logs, chosen[..., None], -1)[..., 0]
            ratio = jnp.exp(own - old)
            normal = (advantages - advantages.mean()) / (advantages.std() + 0.1)
            least = jnp.minimum(ratio * normal, jnp.clip(ratio, 0.8, 1.2) * normal)
            entropy = -jnp.sum(jnp.exp(logs) * logs, -1)
            return -jnp.mean(least) - 0.01 * jnp.mean(entropy)

        return advantages, jax.value_and_grad(loss)(logits)

    return function, (
        draw.normal(steps, actors, actions),
        draw.normal(steps, actors) - np.float32(1.5),
        draw.whole(0, actions, steps, actors),
        draw.normal(steps, actors),
        draw.normal(steps + 1, actors),
        draw.flags(steps, actors, share=0.2),
    )


@program(slack=20)
def traced_targets(draw: Draw):
    """V-trace: truncated importance weights, by an associative scan from the end."""
    steps, actors = draw.size(1, 30), draw.size(1, 30)

    def function(logs, rewards, values, last):
        rho = jnp.minimum(jnp.exp(logs), 1.0)
        following = jnp.concatenate([values[1:], last[None]])
        delta = rho * (rewards + 0.9 * following - values)

        def joined(a, b):
            return a[0] * b[0], b[1] + b[0] * a[1]

        _, off = jax.lax.associative_scan(joined, (0.9 * rho, delta), reverse=True)
        targets = values + off
        after = jnp.concatenate([targets[1:], last[None]])
        return targets, rho * (rewards + 0.9 * after - values)

    return function, (
        draw.normal(steps, actors, scale=0.5),
        draw.normal(steps, actors),
        draw.normal(steps, actors),
        draw.normal(actors),
    )


@program(slack=5)
def distributional_targets(draw: Draw):
    """C51: moved atoms shared between their neighbours by scattered additions."""
    rows, atoms = draw.size(1, 30), draw.size(2, 51)

    def function(p, rewards, done):
        z = jnp.linspace(-4.0, 4.0, atoms)
        moved = jnp.clip(rewards[:, None] + 0.875 * z * (1 - done[:, None]), -4.0, 4.0)
        place = (moved + 4.0) * ((atoms - 1) / 8.0)
        low = jnp.clip(jnp.floor(place), 0, atoms - 2).astype(jnp.int32)
        share = place - low
        row = jnp.arange(rows)[:, None]
        found = jnp.zeros((rows, atoms)).at[row, low].add(p * (1 - share))
        return found.at[row, low + 1].add(p * share)

    p = draw.uniform(rows, atoms, low=0.1)
    done = draw.flags(rows, share=0.2).astype(np.float32)
    return function, (p / p.sum(1, keepdims=True), draw.normal(rows), done)


@program(slack=50)
def pole_rollout(draw: Draw):
    """An environment stepped for all of a batch, started again where it ended."""
    batch, steps = draw.size(1, 40), draw.size(1, 6)

    def physics(state, push):
        x, v, angle, spin = state
        force = jnp.where(push, 10.0, -10.0)
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        part = (force + 0.05 * spin**2 * sine) / 1.1
        turn = (9.8 * sine - cosine * part) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        rise = part - 0.05 * turn * cosine / 1.1
        return jnp.stack([x + 0.02 * v, v + 0.02 * rise, angle + 0.02 * spin, spin + 0.02 * turn])

    def function(states, actions):
        def step(states, push):
            after = jax.vmap(physics)(states, push)
            over = jnp.abs(after[:, 2]) > 0.5
            return jnp.where(over[:, None], 0.0, after), (after[:, 0], over)

        return jax.lax.scan(step, states, actions)

    return function, (draw.normal(batch, 4, scale=0.02), draw.flags(steps, batch))


@program(slack=20)
def soft_actor_critic(draw: Draw):
    """Squashed normal actions with their density; the lesser of two critics, averaged targets."""
    batch, size, actions, hidden = (draw.size(1, n) for n in (30, 20, 6, 40))

    def function(actor, critics, targets, x, noise):
        def act(actor):
            mean, log = jnp.split(jnp.tanh(x @ actor[0]) @ actor[1], 2, -1)
            log = jnp.clip(log, -5.0, 2.0)
            raw = mean + jnp.exp(log) * noise
            density = -0.5 * noise**2 - log - 0.919
            squash = 2 * (jnp.log(2.0) - raw - jax.nn.softplus(-2 * raw))
            return jnp.tanh(raw), jnp.sum(density - squash, -1)

        def value(critic, a):
            return jnp.squeeze(jax.nn.relu(jnp.concatenate([x, a], -1) @ critic[0]) @ critic[1], -1)

        def loss(actor):
            a, density = act(actor)
            least = jnp.min(jax.vmap(value, (0, None))(critics, a), 0)
            return jnp.mean(0.2 * density - least)

        averaged = jax.tree.map(lambda t, c: 0.995 * t + 0.005 * c, targets, critics)
        return jax.value_and_grad(loss)(actor), averaged

    def critics():
        return (
            draw.normal(2, size + actions, hidden, scale=0.3),
            draw.normal(2, hidden, 1, scale=0.3),
        )

    return function, (
        (draw.normal(size, hidden, scale=0.3), draw.normal(hidden, 2 * actions, scale=0.3)),
        critics(),
        critics(),
        draw.normal(batch, size),
        draw.normal(batch, actions),
    )


@program()
def prioritised_replay(draw: Draw):
    """A sum tree of integers: built level by level, sampled by descending it, and updated."""
    depth, asked = draw.size(1, 8), draw.size(1, 40)
    leaves = 1 << depth

    def function(priorities, wanted, places, new):
        def built(level):
            levels = [level]
            while levels[-1].shape[0] > 1:
                levels.append(levels[-1].reshape(-1, 2).sum(1))
            return levels

        levels = built(priorities)
        left = wanted % levels[-1][0]
        node = jnp.zeros_like(left)
        for level in levels[-2::-1]:
            first = level[2 * node]
            right = left >= first
            left = jnp.where(right, left - first, left)
            node = 2 * node + right
        return node, built(priorities.at[places].set(new))[-1]

    return function, (
        draw.whole(1, 50, leaves),
        draw.whole(0, 1 << 20, asked),
        draw.whole(0, leaves, 1),
        draw.whole(1, 50, 1),
    )


@program(slack=5)
def tree_search_scores(draw: Draw):
    """PUCT: descending a tree of arrays by the best score, then values backed up the path."""
    nodes, actions, depth = draw.size(3, 40), draw.size(2, 6), 4

    def function(children, visits, values, priors):
        def descend(state, _):
            node, alive = state
            total = jnp.sum(visits[node])
            score = values[node] + 1.25 * priors[node] * jnp.sqrt(total + 1.0) / (1 + visits[node])
            action = jnp.argmax(score)
            below = children[node, action]
            open = alive & (below >= 0)
            return (jnp.where(open, below, node), open), (node, action, alive)

        (leaf, _), path = jax.lax.scan(descend, (0, True), None, length=depth)
        at, action, alive = path
        more = visits.at[at, action].add(alive.astype(visits.dtype))
        gained = values.at[at, action].add(jnp.where(alive, 0.5, 0.0) / more[at, action])
        return leaf, more, gained

    children = draw.whole(-1, nodes, nodes, actions)
    return function, (
        children,
        draw.whole(0, 9, nodes, actions).astype(np.float32),
        draw.distinct(nodes, actions) / np.float32(nodes),
        draw.uniform(nodes, actions),
    )
