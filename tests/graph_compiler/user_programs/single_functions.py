"""Functions of jax.numpy, jax.scipy, jax.nn and jax.random, one a program, of odd arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from user_programs.drawing import PROGRAMS, Draw, Program

special = jax.scipy.special


def _real(draw: Draw, *most: int, dtype: Any = None):
    """An array of one to three dimensions, or up to `most`."""
    limits = most or (30, 40, 6)[: draw.size(1, 3)]
    shape = (draw.size(1, high) for high in limits)
    return draw.normal(*shape, dtype=draw.pick(REALS) if dtype is None else dtype)


REALS = ("float32", "float32", "float16", "bfloat16")

ELEMENTS = {
    "lgamma": lambda x: special.gammaln(jnp.abs(x) + 0.5),
    "digamma": lambda x: special.digamma(jnp.abs(x) + 0.5),
    "erfinv": lambda x: special.erfinv(jnp.tanh(x) * 0.9),
    "i0e": special.i0e,
    "i1e": special.i1e,
    "xlogy": lambda x: special.xlogy(jnp.abs(x), jnp.abs(x) + 1),
    "entr": lambda x: special.entr(jnp.abs(x) + 0.1),
    "ndtr": lambda x: special.ndtr(x.astype(jnp.float32)),
    "log_ndtr": lambda x: special.log_ndtr(x.astype(jnp.float32)),
    "logit": lambda x: special.logit(jax.nn.sigmoid(x) * 0.9 + 0.05),
    "zeta": lambda x: special.zeta(jnp.abs(x) + 2, 1.5),
    "polygamma": lambda x: special.polygamma(1, jnp.abs(x) + 1),
    "betainc": lambda x: special.betainc(1.5, 2.5, jax.nn.sigmoid(x)),
    "gammainc": lambda x: special.gammainc(2.0, jnp.abs(x)),
    "gammaincc": lambda x: special.gammaincc(1.5, jnp.abs(x) + 0.1),
    "tan": lambda x: jnp.tan(x * 0.5),
    "arcsin": lambda x: jnp.arcsin(jnp.tanh(x)),
    "arccosh": lambda x: jnp.arccosh(jnp.abs(x) + 1.1),
    "arctanh": lambda x: jnp.arctanh(jnp.tanh(x) * 0.9),
    "logaddexp2": lambda x: jnp.logaddexp2(x, -x),
    "nextafter": lambda x: jnp.nextafter(x.astype(jnp.float32), 9.0),
    "frexp": lambda x: jnp.frexp(x.astype(jnp.float32)),
    "ldexp": lambda x: jnp.ldexp(x.astype(jnp.float32), jnp.arange(x.shape[-1]) % 9 - 4),
    "modf": jnp.modf,
    "heaviside": lambda x: jnp.heaviside(x, 0.5),
    "float_power": lambda x: jnp.float_power(jnp.abs(x) + 0.1, 1.3),
    "reduce_precision": lambda x: jax.lax.reduce_precision(x.astype(jnp.float32), 5, 7),
    "unwrap": lambda x: jnp.unwrap(jnp.round(x.astype(jnp.float32) * 4)),
    "piecewise": lambda x: jnp.piecewise(
        x, [x < -0.5, x > 0.5], [lambda x: -x, lambda x: x * x, lambda x: x + 2]
    ),
    "select": lambda x: jnp.select([x > 1, x > 0, x < -1], [x, x * 2, x * 3], 7),
    "glu": lambda x: jax.nn.glu(jnp.concatenate([x, x], -1)),
    "standardize": lambda x: jax.nn.standardize(x.astype(jnp.float32), epsilon=1e-2),
    "softmax_of_part": lambda x: jax.nn.softmax(x, axis=0, where=jnp.abs(x) < 2),
    "logsumexp_with_signs": lambda x: special.logsumexp(x, axis=0, b=jnp.sin(x) + 2),
    "log_softmax": lambda x: jax.nn.log_softmax(x, axis=0),
    "sinc_gradient": jax.grad(lambda x: jnp.sum(jnp.sinc(x.astype(jnp.float32)))),
    "safe_sqrt_gradient": jax.grad(
        lambda x: jnp.sum(jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1)), 0).astype(jnp.float32))
    ),
    "jvp_of_logsumexp": lambda x: jax.jvp(lambda x: jax.nn.logsumexp(x, -1), (x,), (x,)),
}
"""Of one array."""

MATRICES = {
    "cov": lambda x: jnp.cov(x),
    "corrcoef": lambda x: jnp.corrcoef(x),
    "convolve": lambda x: jnp.convolve(x[0], x[:, 0], mode="same"),
    "correlate": lambda x: jnp.correlate(x[0], x[:, 0], mode="full"),
    "trapezoid": lambda x: jnp.trapezoid(x, axis=0),
    "rot90": lambda x: (jnp.rot90(x), jnp.fliplr(x), jnp.flipud(x)),
    "roll_by_data": lambda x: jnp.roll(x, jnp.argmax(x[0]), axis=0),
    "tensordot": lambda x: jnp.tensordot(x, x, axes=((0, 1), (0, 1))),
    "block": lambda x: jnp.block([[x, x * 2], [x * 3, x * 4]]),
    "insert": lambda x: (jnp.insert(x, 1, 9.0, axis=0), jnp.delete(x, 0, axis=1)),
    "fill_diagonal": lambda x: jnp.fill_diagonal(x, 3.0, inplace=False),
    "nanmedian": lambda x: jnp.nanmedian(jnp.where(x > 1, jnp.nan, x), axis=0),
    "nanvar": lambda x: jnp.nanvar(jnp.where(x > 1, jnp.nan, x), axis=1),
    "partition": lambda x: jnp.partition(x, x.shape[1] // 2, axis=1)[:, x.shape[1] // 2],
    "lexsort": lambda x: jnp.lexsort((x[:, 0], jnp.round(x[:, -1]))),
    "argpartition": lambda x: jnp.sort(jnp.argpartition(x, x.shape[1] // 2)[:, : x.shape[1] // 2]),
    "approx_max_k": lambda x: jax.lax.approx_max_k(x, 1),
    "histogram": lambda x: jnp.histogram(jnp.round(x * 4), bins=7, range=(-8, 8))[0],
    "histogram2d": lambda x: jnp.histogram2d(x[0], x[0] * 0, bins=4, range=((-4, 4), (-1, 1)))[0],
    "average": lambda x: jnp.average(x, axis=0, weights=jnp.arange(1.0, x.shape[0] + 1)),
    "apply_along_axis": lambda x: jnp.apply_along_axis(lambda r: r / (1 + jnp.abs(r).sum()), 0, x),
    "put_along_axis": lambda x: jnp.put_along_axis(
        x, jnp.argmax(x, 1)[:, None], 9.0, axis=1, inplace=False
    ),
    "matrix_norms": lambda x: (jnp.linalg.norm(x, "fro"), jnp.linalg.norm(x, -1)),
    "vecdot": lambda x: (jnp.vecdot(x, x + 1), jnp.linalg.vector_norm(x, axis=0)),
    "jacobian": lambda x: jax.jacfwd(lambda r: jnp.tanh(x @ r))(x[0]),
    "reverse_jacobian": lambda x: jax.jacrev(lambda r: jnp.sin(x @ r))(x[0]),
    "hessian": lambda x: jax.hessian(lambda r: jnp.sum(jnp.sin(r) * r[::-1]))(x[0]),
    "linearised": lambda x: jax.linearize(lambda x: jnp.sum(jnp.exp(x / 4), 0), x)[1](x),
    "expm": lambda x: jax.scipy.linalg.expm(
        (x[:, :1] @ x[:1]).sum() * 0 + jnp.outer(x[0], x[0]) / (1 + x[0] @ x[0])
    ),
    "pairwise_distances": lambda x: jnp.sqrt(
        jnp.maximum(((x[:, None] - x[None]) ** 2).sum(-1), 1e-3)
    ),
    "map_coordinates": lambda x: jax.scipy.ndimage.map_coordinates(
        x, [jnp.arange(4.0) * 0.7, jnp.arange(4.0) * 0.4], order=1, mode="nearest"
    ),
    "scale_and_translate": lambda x: jax.image.scale_and_translate(
        x, (7, 9), (0, 1), jnp.array([1.3, 0.7]), jnp.array([0.5, -0.5]), "linear"
    ),
    "dot_product_attention": lambda x: jax.nn.dot_product_attention(
        x[None, :, None], x[None, :, None], x[None, :, None], is_causal=True
    ),
    "shifted_rows": lambda x: jnp.stack([x[0, i:][:1] for i in range(min(3, x.shape[1]))]),
    "gradient_of_sort": jax.grad(lambda x: jnp.sum(jnp.sort(x, 0) * jnp.arange(x.shape[1]))),
    "gradient_of_max": jax.grad(lambda x: jnp.sum(jnp.max(x, 1) ** 2)),
    "gradient_of_cumsum": jax.grad(lambda x: jnp.sum(jnp.cumsum(x, 0) ** 2)),
    "gradient_of_median": jax.grad(lambda x: jnp.sum(jnp.median(x, 0))),
    "gradient_of_norm": jax.grad(lambda x: jnp.sum(jnp.linalg.norm(x, axis=1))),
    "gradient_of_prod": jax.grad(lambda x: jnp.sum(jnp.prod(x[:, :6], 1))),
    "gradient_of_take": jax.grad(lambda x: jnp.sum(x[jnp.array([0, 0, -1])] ** 2)),
    "gradient_of_logcumsumexp": jax.grad(lambda x: jnp.sum(jax.lax.cumlogsumexp(x, 1))),
}
"""Of a matrix in fp32 of two rows and columns at least."""

WHOLE = {
    "gcd": lambda a, b: jnp.gcd(a, b),
    "lcm": lambda a, b: jnp.lcm(a % 50, b % 50),
    "isin": lambda a, b: jnp.isin(a, b),
    "setdiff": lambda a, b: jnp.setdiff1d(a, b, size=9, fill_value=-1),
    "intersection": lambda a, b: jnp.intersect1d(a, b, size=9, fill_value=-1),
    "unravel": lambda a, b: jnp.unravel_index(jnp.abs(a) % 60, (3, 4, 5)),
    "ravel": lambda a, b: jnp.ravel_multi_index((a, b), (7, 9), mode="wrap"),
    "bitwise_count": lambda a, b: jnp.bitwise_count(a),
    "float_division": lambda a, b: (a / (jnp.abs(b) + 1), jnp.mean(a), jnp.var(a)),
    "floor_divide_float": lambda a, b: (a.astype(float) // 7.0, jnp.remainder(a, -7)),
    "argwhere": lambda a, b: jnp.argwhere(a > b, size=5, fill_value=-1),
    "cumulative": lambda a, b: (jnp.cumsum(a), jnp.cumprod(a % 3 + 1)[:9]),
    "mode": lambda a, b: jax.scipy.stats.mode(a % 9)[0],
    "rank": lambda a, b: jax.scipy.stats.rankdata(a),
    "interp": lambda a, b: jnp.interp(
        a.astype(float), jnp.arange(10.0) * 20 - 90, jnp.arange(10.0)
    ),
    "factors_of_two": lambda a, b: a & -a,
    "roll": lambda a, b: jnp.roll(a, b[0]),
    "repeat": lambda a, b: jnp.repeat(a, jnp.abs(b) % 3, total_repeat_length=20),
    "choose": lambda a, b: jnp.choose(a % 3, [a, b, a + b], mode="clip"),
    "compress": lambda a, b: jnp.compress(a > 0, b, size=7, fill_value=0),
    "polynomial_hash": lambda a, b: jax.lax.fori_loop(
        0, a.shape[0], lambda i, h: h * 31 + a[i], jnp.int32(7)
    ),
    "union": lambda a, b: jnp.union1d(a % 9, b % 9, size=18, fill_value=-1),
    "digitize": lambda a, b: jnp.digitize(a, jnp.array([-50, 0, 3, 50])),
    "after_the_first": lambda a, b: jnp.where(jnp.cumsum(a != 0) > 0, a, -1),
    "left_right": lambda a, b: (jnp.left_shift(a, 3), jnp.right_shift(b, jnp.abs(a) % 40)),
    "narrow_reductions": lambda a, b: (
        *(a.astype("int8").max(), b.astype("uint16").min(), a.astype("int16").sum()),
    ),
    "bool_arithmetic": lambda a, b: ((a > 0) + (b > 0), (a > 0) * 3, jnp.sum(a > 0, dtype="int8")),
}
"""Of two rows of integers in 32 bits."""

DRAWN = {
    "choice": lambda k: jax.random.choice(k, 20, (7,), replace=False),
    "weighted_choice": lambda k: jax.random.choice(k, 5, (30,), p=jnp.arange(1.0, 6) / 15),
    "truncated_normal": lambda k: jax.random.truncated_normal(k, -1.0, 2.0, (30,)),
    "exponential": lambda k: jax.random.exponential(k, (9, 3)),
    "laplace": lambda k: jax.random.laplace(k, (30,)),
    "rademacher": lambda k: jax.random.rademacher(k, (5, 5)),
    "cauchy": lambda k: jnp.tanh(jax.random.cauchy(k, (17,))),
    "logistic": lambda k: jax.random.logistic(k, (17,)),
    "gamma": lambda k: jax.random.gamma(k, 2.5, (9,)),
    "beta": lambda k: jax.random.beta(k, 1.5, 2.5, (9,)),
    "dirichlet": lambda k: jax.random.dirichlet(k, jnp.ones(4), (3,)),
    "poisson": lambda k: jax.random.poisson(k, 3.0, (9,)),
    "binomial": lambda k: jax.random.binomial(k, 10, 0.5, (9,)),
    "t": lambda k: jax.random.t(k, 5.0, (9,)),
    "half_normal": lambda k: jax.random.normal(k, (9, 5), jnp.float16),
    "short_normal": lambda k: jax.random.normal(k, (9, 5), jnp.bfloat16),
    "maxwell": lambda k: jax.random.maxwell(k, (9,)),
    "ball": lambda k: jax.random.ball(k, 3, shape=(5,)),
    "bytes": lambda k: jax.random.bits(k, (40,), "uint8"),
    "short_integers": lambda k: jax.random.randint(k, (40,), -5, 90, "int8"),
    "permuted_rows": lambda k: jax.random.permutation(
        k, jnp.arange(24).reshape(6, 4), axis=1, independent=True
    ),
    "keys_of_a_scan": lambda k: jax.lax.scan(
        lambda k, _: (jax.random.split(k)[0], jax.random.uniform(k, (3,))), k, None, length=4
    ),
    "mapped_keys": lambda k: jax.vmap(lambda k: jax.random.normal(k, (4,)))(jax.random.split(k, 6)),
    "folded_keys": lambda k: jax.vmap(lambda i: jax.random.bits(jax.random.fold_in(k, i)))(
        jnp.arange(9)
    ),
    "gumbel_top": lambda k: jnp.argsort(jax.random.gumbel(k, (20,)))[:4],
    "rotated_noise": lambda k: jnp.roll(jax.random.normal(k, (11,)), 3),
    "split_to_a_matrix": lambda k: jax.random.split(k, (2, 3)),
}
"""Of a key."""

LAPACK = frozenset({"hlo-not-supported"})


def _add(
    table: dict[str, Callable[..., Any]],
    prefix: str,
    arguments: Callable[[Draw], tuple[Any, ...]],
    slack: float = 1.0,
) -> None:
    for name, function in table.items():

        def build(draw: Draw, function: Any = function) -> Program:
            return Program(function, arguments(draw), slack, LAPACK)

        PROGRAMS[f"{prefix}_{name}"] = build


def _two_rows(draw: Draw) -> tuple[Any, ...]:
    count = 2 + draw.size(1, 60)
    return draw.whole(-99, 100, count), draw.whole(-99, 100, count)


_add(ELEMENTS, "elements", lambda draw: (_real(draw),), slack=5)
_add(MATRICES, "matrix", lambda draw: (draw.normal(draw.size(2, 20), draw.size(2, 20)),), slack=5)
_add(WHOLE, "whole", _two_rows)
_add(DRAWN, "drawn", lambda draw: (draw.bits(2, dtype="uint32"),), slack=5)
