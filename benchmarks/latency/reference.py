"""What the kernels compute, in NumPy."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def matmul(lhs_t: Array, rhs: Array) -> Array:
    return lhs_t.T @ rhs


def turned(lhs_t: Array, rhs_t: Array) -> Array:
    return lhs_t.T @ rhs_t.T


def swapped(lhs: Array, rhs_t: Array) -> Array:
    return lhs @ rhs_t.T


def batched(lhs: Array, rhs: Array) -> Array:
    return lhs @ rhs


def scan(delta: Array, u: Array, a: Array, b: Array, c: Array) -> Array:
    total = np.zeros_like(delta)
    for state in range(a.shape[1]):
        decay = np.exp(delta * a[:, state : state + 1])
        driven = delta * u * b[state]
        value = np.zeros(delta.shape[0])
        for time in range(delta.shape[1]):
            value = decay[:, time] * value + driven[:, time]
            total[:, time] += value * c[state, time]
    return total


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    centred = x - x.mean(axis=1, keepdims=True)
    spread = (centred**2).mean(axis=1, keepdims=True)
    return centred / np.sqrt(spread + 1e-5) * gamma + beta


def adamw(theta: Array, gradient: Array, first: Array, second: Array) -> Array:
    mean = 0.9 * first + 0.1 * gradient
    spread = 0.999 * second + 0.001 * gradient**2
    return theta * (1 - 1e-5) - 0.01 * mean / (np.sqrt(1000.0 * spread) + 1e-8)


def norm_then_product(x: Array, w: Array, z: Array, g: Array) -> Array:
    return _rms_norm(x + z, g) @ w


def product_then_norm(x: Array, w: Array, z: Array, g: Array) -> Array:
    return _rms_norm(x @ w + z, g)


def _rms_norm(x: Array, g: Array) -> Array:
    return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5) * g


def depthwise(x: Array, weights: Array) -> Array:
    padded = np.pad(x, ((0, 0), (1, 1)))
    taps = [weights[:, k : k + 1] * padded[:, k : k + x.shape[1]] for k in range(3)]
    return np.sum(taps, axis=0)


def attend(q: Array, k: Array, v: Array) -> Array:
    scores = np.exp(q.T @ k)
    return scores / scores.sum(axis=1, keepdims=True) @ v.T
