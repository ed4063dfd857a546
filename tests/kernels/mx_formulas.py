"""Microscaling: packed values with one scale for 8 partitions of 4 elements, and their product."""

from __future__ import annotations

import ml_dtypes
import numpy as np

FP8 = ml_dtypes.float8_e5m2
FP4 = ml_dtypes.float4_e2m1fn


def packed(random, partitions, columns, dtype):
    """Random values of `dtype`, [partitions, columns], four to a word, and their float64 values."""
    bits = 4 if dtype is FP4 else 8
    values = random.choice([-1.5, -1, -0.5, 0, 0.5, 1, 2, 3], (partitions, columns, 4))
    stored = values.astype(dtype)
    words = np.zeros((partitions, columns), np.uint32)
    for i in range(4):
        words |= stored[..., i].view(np.uint8).astype(np.uint32) << np.uint32(bits * i)
    return words.astype(np.uint16 if bits == 4 else np.uint32), stored.astype(np.float64)


def scales(random, partitions, columns):
    """Exponents with a bias of 127: a byte for 8 partitions of a column."""
    return random.integers(120, 134, (partitions // 8, columns)).astype(np.uint8)


def scaled(values, exponents):
    """[partitions, columns, 4] times the scales of their groups."""
    return values * np.exp2(exponents.astype(np.float64) - 127).repeat(8, axis=0)[..., None]


def unpacked(words, dtype):
    """The four values of each word."""
    bits = 4 if dtype is FP4 else 8
    parts = [words >> np.array(bits * i, words.dtype) & (2**bits - 1) for i in range(4)]
    return np.stack(parts, axis=-1).astype(np.uint8).view(dtype).astype(np.float64)


def contracted(stationary, moving):
    """Sum over partitions and over the four elements of each word."""
    return np.einsum("pmi,pni->mn", stationary, moving)


def exact(random, *shape):
    """Bfloat16 values that quantising and scaling back does not change: 2 bits, 8 binades."""
    mantissa = random.choice([1, 1.25, 1.5, 1.75], shape) * random.choice([-1, 1], shape)
    return (mantissa * np.exp2(random.integers(-4, 4, shape))).astype(ml_dtypes.bfloat16)
