"""Functions of jax.numpy that no other theme has."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from user_programs.drawing import Draw, program


@program(slack=5)
def without_missing(draw: Draw):
    """Statistics that leave NaN out."""
    rows, columns = draw.size(2, 40), draw.size(2, 40)

    def function(x):
        return (
            jnp.nansum(x, 0),
            jnp.nanmean(x, 1),
            jnp.nanmax(x),
            jnp.nanmin(x, 0),
            jnp.nanstd(x, 1),
            jnp.nanargmax(x, 0),
            jnp.nancumsum(x, 1),
            jnp.nan_to_num(x, nan=2.0),
            jnp.nanmedian(x, 0),
        )

    x = draw.distinct(rows, columns) / np.float32(rows)
    holes = draw.flags(rows, columns, share=0.2)
    holes[0] = holes[:, 0] = False
    return function, (np.where(holes, np.float32(np.nan), x),)


@program(slack=20)
def interpolations(draw: Draw):
    knots, count = draw.size(2, 40), draw.size(1, 200)

    def function(x, at, values, image):
        where = jnp.stack([x * 1.5, jnp.abs(x)])
        return (
            jnp.interp(x, at, values),
            jnp.interp(x, at, values, left=-1.0, right=2.0),
            jax.scipy.ndimage.map_coordinates(image, where, order=1, mode="nearest"),
            jnp.trapezoid(values, at),
            jnp.gradient(values),
            jnp.digitize(x, at),
        )

    return function, (
        draw.distinct(count) / np.float32(count),
        np.cumsum(draw.uniform(knots, low=0.1)).astype(np.float32),
        draw.normal(knots),
        draw.normal(draw.size(2, 12), draw.size(2, 12)),
    )


@program()
def sets_of_integers(draw: Draw):
    """Sets of a stated size, membership, counts in bins, several keys."""
    count = draw.size(1, 100)

    def function(a, b):
        return (
            jnp.unique(a, size=count, fill_value=-1),
            jnp.isin(a, b),
            jnp.bincount(a, length=20),
            jnp.lexsort((a[: len(b)], b)),
            jnp.union1d(a, b, size=2 * count, fill_value=99),
            jnp.intersect1d(a, b, size=20, fill_value=-1),
            jnp.setdiff1d(a, b, size=20, fill_value=-1),
            jnp.nonzero(a > 9, size=count, fill_value=count)[0],
            jnp.flatnonzero(b == 3, size=5, fill_value=-1),
            jnp.argwhere(a > 5, size=4, fill_value=0),
        )

    return function, (draw.whole(0, 20, count), draw.whole(0, 20, draw.size(1, count)))


@program()
def bits_and_bytes(draw: Draw):
    count = draw.size(1, 100)

    def function(x, flags, a, b):
        return (
            jnp.packbits(flags),
            jnp.unpackbits(x, axis=-1),
            jnp.gcd(a, b),
            jnp.lcm(a % 100, b % 100),
            jax.lax.population_count(a),
            jax.lax.clz(b),
            jnp.bitwise_count(a),
            jnp.left_shift(a, b % 8),
            jnp.invert(x),
            jnp.floor_divide(a, b),
            jnp.mod(-a, b),
        )

    return function, (
        draw.bits(count, 2, dtype=np.uint8),
        draw.flags(draw.size(1, 90)),
        draw.whole(1, 30000, count),
        draw.whole(1, 3000, count),
    )


@program(slack=20)
def parts_of_floats(draw: Draw):
    count = draw.size(1, 200)

    def function(x, y, n):
        share, power = jnp.frexp(x)
        part, whole = jnp.modf(x)
        return (
            share,
            power,
            part,
            whole,
            jnp.ldexp(x, n),
            jnp.nextafter(x, y),
            jnp.copysign(x, y),
            jnp.signbit(x),
            jnp.heaviside(x, 0.5),
            jnp.sinc(x),
            jnp.logaddexp2(x, y),
            jnp.fmod(x, 0.75),
            jnp.unwrap(x * 3),
            jnp.float_power(jnp.abs(x) + 0.5, y),
            jnp.cbrt(x),
            jnp.deg2rad(x),
            jnp.hypot(x, y),
            jnp.i0(x),
        )

    return function, (
        draw.distinct(count) / np.float32(count) + np.float32(0.01),
        draw.normal(count),
        draw.whole(-4, 5, count),
    )


@program(slack=100)
def special_probabilities(draw: Draw):
    """Functions of statistics, by series and continued fractions."""
    count = draw.size(1, 60)

    def function(x, p):
        s = jax.scipy.special
        return (
            s.erfinv(p * 1.8 - 0.9),
            s.ndtri(p * 0.9 + 0.05),
            s.gammainc(x, x + 0.5),
            s.betainc(x, x + 0.5, p),
            s.gammaln(x),
            s.digamma(x),
            s.entr(p),
            s.xlogy(x, p),
            s.logit(p * 0.9 + 0.05),
            s.log_ndtr(x - 1.5),
            s.i1e(x),
            s.expit(x),
            jax.scipy.stats.poisson.logpmf(jnp.arange(count), x),
            jax.scipy.stats.beta.logpdf(p * 0.9 + 0.05, 2.0, x),
            jax.scipy.stats.t.logpdf(x, 5.0),
        )

    return function, (draw.uniform(count, low=0.25) * np.float32(4), draw.uniform(count, low=0.05))


@program(slack=20)
def convolved_series(draw: Draw):
    count, window = draw.size(4, 80), draw.size(1, 4)

    def function(x, y, w):
        return (
            jnp.convolve(x, w, mode="same"),
            jnp.correlate(x, w, mode="full"),
            jax.scipy.signal.convolve2d(jnp.outer(x, x)[:8, :8], jnp.outer(w, w), mode="same"),
            jnp.cov(x, y),
            jnp.corrcoef(jnp.stack([x, y, x * y])),
            jnp.diff(x, 2),
            jnp.ediff1d(y),
            jnp.polyval(w, x * 0.5),
            jnp.vander(y * 0.5, 3),
            jnp.cross(x[:3], y[:3]),
            jnp.kron(w, x),
        )

    return function, (draw.normal(count), draw.normal(count), draw.normal(window))


@program()
def moved_elements(draw: Draw):
    """Rolls by numbers that are arguments, blocks, triangles, choices among arrays."""
    size = draw.size(2, 30)

    def function(x, by):
        return (
            jnp.roll(x, by, 0),
            jnp.roll(x, (by, -by), (0, 1)),
            jnp.rot90(x),
            jnp.triu(x, 1) + jnp.tril(x, -2),
            jnp.block([[x, x.T], [jnp.zeros_like(x), jnp.ones_like(x)]]),
            jnp.fill_diagonal(x, 7.0, inplace=False),
            x[jnp.triu_indices(size)],
            jnp.tile(x, (2, 3)),
            jnp.insert(x, 1, 5.0, axis=1),
            jnp.delete(x, 0, axis=0),
            jnp.take(x, jnp.array([0, -1, 5]), axis=1, mode="wrap"),
            jnp.flip(jnp.moveaxis(jnp.stack([x, x]), 0, 2), 0),
            jnp.diagonal(x, 1),
            jnp.trace(x, 1),
        )

    return function, (draw.distinct(size, size), draw.whole(-50, 50))


@program(slack=200)
def matrix_functions(draw: Draw):
    """The exponential by Pade's approximant, powers, Kronecker products, chains of products."""
    size = draw.size(1, 16)

    def function(a, b):
        return (
            jax.scipy.linalg.expm(a),
            jnp.linalg.matrix_power(b, 5),
            jnp.linalg.multi_dot([a, b, a.T]),
            jax.scipy.linalg.toeplitz(a[0]),
            jax.scipy.linalg.block_diag(a, b),
            jnp.linalg.norm(a, ord="fro"),
            jnp.linalg.norm(b, ord=1),
            jnp.linalg.vecdot(a, b),
            jnp.linalg.cross(a[:, :1] * jnp.ones((size, 3)), jnp.arange(3.0)),
        )

    return function, tuple(draw.normal(size, size, scale=0.2) for _ in range(2))


@program(slack=5)
def partitioned(draw: Draw):
    rows, size = draw.size(1, 20), draw.size(3, 60)

    def function(x):
        middle = size // 2
        return (
            jnp.partition(x, middle, axis=1)[:, middle],
            jnp.percentile(x, jnp.array([10.0, 50.0, 90.0]), axis=1),
            jnp.quantile(x, 0.25, axis=0, method="nearest"),
            jnp.median(x),
            jnp.ptp(x, 0),
            jnp.average(x, 1, weights=jnp.arange(1.0, size + 1)),
            jnp.searchsorted(jnp.sort(x[0]), x.ravel()),
            jnp.histogram(x, bins=8, range=(-4.03, 4.03))[0],
            jnp.count_nonzero(x > 0, axis=1),
        )

    return function, (draw.distinct(rows, size) / np.float32(4),)
