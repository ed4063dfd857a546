"""Integers and bits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from user_programs.drawing import Draw, program

TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32")


def _pair(draw: Draw):
    dtype = draw.pick(TYPES)
    shape = draw.size(1, 90), draw.size(1, 30)
    return dtype, draw.bits(*shape, dtype=dtype), draw.bits(*shape, dtype=dtype)


@program()
def integer_arithmetic(draw: Draw):
    """All that wraps around."""
    _, a, b = _pair(draw)
    return lambda a, b: (a + b, a - b, a * b, -a, jnp.abs(a), a * 3 + b, a - 1), (a, b)


@program()
def integer_division(draw: Draw):
    """By numbers that are not zero: rounded down, towards zero, and remainders."""
    dtype, a, b = _pair(draw)
    b = np.where(b == 0, 3, b).astype(dtype)
    a = np.where((b.astype("int64") == -1), 7, a).astype(dtype)

    def function(a, b):
        return a // b, a % b, jax.lax.div(a, b), jax.lax.rem(a, b), jnp.divmod(a, b)

    return function, (a, b)


@program()
def division_by_constants(draw: Draw):
    dtype = draw.pick(TYPES)
    x = draw.bits(draw.size(1, 90), draw.size(1, 30), dtype=dtype)
    number = draw.pick((1, 2, 3, 7, 8, 10, 64, 100))
    return lambda x: (x // number, x % number, x // number * number == x), (x,)


@program()
def integer_powers(draw: Draw):
    _, a, b = _pair(draw)
    return lambda a, b: (a**2, a**3, jnp.minimum(a, b), jnp.maximum(a, b), jnp.sign(a)), (a, b)


@program()
def bit_operations(draw: Draw):
    dtype, a, b = _pair(draw)
    width = np.iinfo(dtype).bits
    shift = draw.whole(0, width + 3, *a.shape, dtype=dtype)

    def function(a, b, shift):
        return (
            *(a & b, a | b, a ^ b, ~a),
            *(jax.lax.shift_left(a, shift), jax.lax.shift_right_logical(a, shift)),
            *(jax.lax.shift_right_arithmetic(a, shift), a << 1, a >> 2),
            *(jax.lax.population_count(a), jax.lax.clz(b)),
        )

    return function, (a, b, shift)


@program()
def hash_of_words(draw: Draw):
    """Rounds of multiplication and rotation of 32 bits, as hash tables have them."""
    x = draw.bits(draw.size(1, 300), dtype="uint32")

    def function(x):
        h = jnp.uint32(0x9747B28C)
        for constant in (0xCC9E2D51, 0x1B873593, 0x85EBCA6B):
            x = x * jnp.uint32(constant)
            x = (x << 15) | (x >> 17)
            h = (h ^ x) * jnp.uint32(5) + jnp.uint32(0xE6546B64)
        h = h ^ (h >> 16)
        return h, (h % 1000).astype(jnp.int32), jax.lax.reduce_xor(h, axes=(0,))

    return function, (x,)


@program()
def packed_nibbles(draw: Draw):
    rows, width = draw.size(1, 60), draw.size(1, 40)

    def function(x):
        low, high = x & 15, x >> 4
        both = jnp.stack([low, high], -1).reshape(rows, 2 * width).astype(jnp.int8) - 8
        packed = (both[:, ::2] + 8) | ((both[:, 1::2] + 8) << 4)
        return both, packed.astype(jnp.uint8) == x, jnp.packbits(x > 100, axis=1)

    return function, (draw.bits(rows, width, dtype="uint8"),)


@program()
def bits_of_floats(draw: Draw):
    """Exponents and signs from the bits, and the old trick for one over a square root."""
    x = draw.normal(draw.size(1, 130), draw.size(1, 20))

    def function(x):
        bits = jax.lax.bitcast_convert_type(x, jnp.int32)
        exponent = ((bits >> 23) & 255) - 127
        magic = jax.lax.bitcast_convert_type(0x5F3759DF - ((bits & 0x7FFFFFFF) >> 1), jnp.float32)
        halves = jax.lax.bitcast_convert_type(x, jnp.uint16)
        rounded = jax.lax.bitcast_convert_type(bits & -65536, jnp.float32)
        return (
            exponent,
            magic,
            bits < 0,
            halves,
            rounded,
            jax.lax.bitcast_convert_type(halves, x.dtype),
        )

    return function, (x,)


@program()
def conversions(draw: Draw):
    """Between types, of numbers that fit and integers that wrap around."""
    shape = draw.size(1, 130), draw.size(1, 20)
    source, target = draw.pick(TYPES), draw.pick((*TYPES, "float32", "bfloat16", "bool"))

    def function(a, x):
        return (
            *(a.astype(target), a.astype("float32").astype("int32") if source[-1] != "2" else a),
            *(x.astype("int32"), x.astype("int8"), jnp.round(x).astype("int16")),
            *((x > 0).astype(source), x.astype("bfloat16").astype("float32"), x.astype(bool)),
        )

    return function, (
        draw.bits(*shape, dtype=source),
        draw.normal(*shape, scale=30).clip(-120, 120),
    )


@program()
def integer_products(draw: Draw):
    """Products of small integers in 32 bits."""
    m, k, n = draw.size(1, 40), draw.size(1, 60), draw.size(1, 40)
    dtype = draw.pick(("int8", "uint8", "int16"))

    def function(a, b):
        return jnp.matmul(a, b, preferred_element_type=jnp.int32)

    return function, (
        draw.whole(0, 100, m, k, dtype=dtype),
        draw.whole(0, 100, k, n, dtype=dtype),
    )


@program()
def morton_codes(draw: Draw):
    """Interleaved bits of coordinates, sorted by them."""
    count = draw.size(1, 90)

    def function(x, y):
        def spread(v):
            for shift, mask in ((8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)):
                v = (v | (v << shift)) & mask
            return v

        codes = spread(x) | (spread(y) << 1)
        order = jnp.argsort(codes)
        return codes, order, x[order], y[order]

    return function, (draw.whole(0, 1 << 15, count), draw.whole(0, 1 << 15, count))


@program()
def calendar(draw: Draw):
    """Days since 1970 as dates: divisions of integers with negative ones."""
    days = draw.whole(-100000, 100000, draw.size(1, 200))

    def function(days):
        z = days + 719468
        era = z // 146097
        doe = z - era * 146097
        yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
        doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
        mp = (5 * doy + 2) // 153
        month = jnp.where(mp < 10, mp + 3, mp - 9)
        year = yoe + era * 400 + (month <= 2)
        return year, month, doy - (153 * mp + 2) // 5 + 1, (days + 4) % 7

    return function, (days,)
