"""What public kernels compute, written from the maths in float64."""

from __future__ import annotations

import numpy as np


def matmul(lhsT, rhs, *_):
    return lhsT.astype(np.float64).T @ rhs.astype(np.float64)


def add(a, b):
    return a.astype(np.float64) + b


def exp(a):
    return np.exp(a.astype(np.float64))


def even_and_odd_columns(a):
    return a[:, ::2], a[:, 1::2]


def _windows(a, size):
    """[C, H / size, W / size, size, size]: the windows of a pooling without overlap."""
    c, h, w = a.shape
    blocks = a.astype(np.float64).reshape(c, h // size, size, w // size, size)
    return blocks.transpose(0, 1, 3, 2, 4)


def max_pool(a, size):
    return _windows(a, size).max(axis=(3, 4))


def average_pool(a, size):
    return _windows(a, size).mean(axis=(3, 4))


def transposed_rows(a, shape):
    """Each row is a matrix of this shape in row-major order; its transpose, likewise."""
    return a.reshape(len(a), *shape).transpose(0, 2, 1).reshape(a.shape)


def selective_scan(delta, u, a, b, c):
    """Mamba: h[t] = exp(delta[t] a) h[t - 1] + delta[t] u[t] b[t], y[t] = sum(c[t] h[t])."""
    delta, u, a, b, c = (x.astype(np.float64) for x in (delta, u, a, b, c))
    h = np.zeros((*delta.shape[:2], a.shape[1]))
    y = np.zeros_like(delta)
    for t in range(delta.shape[2]):
        step = delta[:, :, t, None]
        h = np.exp(step * a) * h + step * u[:, :, t, None] * b[:, None, :, t]
        y[:, :, t] = np.sum(h * c[:, None, :, t], axis=-1)
    return y


def rms_norm(x, weight, eps):
    x = x.astype(np.float64)
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps) * weight


def rotate_partly(x, cos, sin, size):
    """Rotary embedding of the first `size` elements of the last axis, by halves."""
    turned = np.concatenate([-x[..., size // 2 : size], x[..., : size // 2]], axis=-1)
    return np.concatenate([x[..., :size] * cos + turned * sin, x[..., size:]], axis=-1)


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def attention(q, k, v, bias=0.0):
    """softmax(q k^T + bias) v for each of the leading axis."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    return softmax(q @ k.transpose(0, 2, 1) + bias) @ v


def gated_delta_rule(query, key, value, log_decay, beta, state):
    """Outputs of each token and the last state: one head, one log decay and beta a token.

    S = exp(g) S;  S += k outer (beta (v - S^T k));  o = S^T q.
    """
    outputs = np.zeros((len(query), state.shape[1]))
    state = state.astype(np.float64)
    for t, (q, k, v) in enumerate(zip(query, key, value)):
        state = np.exp(np.float64(log_decay[t])) * state
        state = state + np.outer(k, beta[t] * (v - state.T @ k))
        outputs[t] = state.T @ q
    return outputs, state


def unit_rows(x, eps=1e-12):
    x = x.astype(np.float64)
    return x / np.sqrt(np.sum(x**2, axis=-1, keepdims=True) + eps)
