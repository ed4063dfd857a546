"""Infinities and NaN, quantised numbers, products of odd forms, parts of linear algebra."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from user_programs.drawing import Draw, program


def _special(draw: Draw, *shape: int, dtype="float32"):
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 3.4e38, 1e-30, -2.5, 0.5])
    return draw.random.choice(values, shape).astype(dtype)


@program()
def special_numbers(draw: Draw):
    dtype = draw.float_type()
    shape = draw.size(1, 100), draw.size(1, 30)

    def function(x, y):
        return (
            *(jnp.isnan(x), jnp.isinf(x), jnp.isfinite(x), jnp.nan_to_num(x)),
            *(x == y, x < y, x >= y, x != x, jnp.signbit(x), jnp.sign(x)),
            *(jnp.maximum(x, y), jnp.minimum(x, y), jnp.where(jnp.isnan(x), 0, x)),
            *(jnp.abs(x), -x, jnp.copysign(x, y)),
        )

    return function, (_special(draw, *shape, dtype=dtype), _special(draw, *shape, dtype=dtype))


@program()
def special_arithmetic(draw: Draw):
    shape = draw.size(1, 100), draw.size(1, 30)

    def function(x, y):
        return x + y, x - y, x * y, x / y, jnp.clip(x, -1, 2), jnp.fmax(x, y), jnp.hypot(x, y)

    return function, (_special(draw, *shape), _special(draw, *shape))


@program()
def special_functions(draw: Draw):
    x = _special(draw, draw.size(1, 100), draw.size(1, 30))

    def function(x):
        return (
            *(jnp.exp(x), jnp.log(x), jnp.sqrt(x), jax.lax.rsqrt(x), jnp.tanh(x)),
            *(jax.nn.sigmoid(x), jnp.floor(x), jnp.ceil(x), jnp.round(x), jnp.expm1(x)),
            *(jnp.log1p(x), jnp.arctan(x), jnp.square(x), jnp.power(jnp.abs(x), 0.5)),
        )

    return function, (x,)


@program()
def special_reductions(draw: Draw):
    shape = draw.size(1, 40), draw.size(1, 30)
    axis = draw.size(0, 1)
    x = np.where(draw.flags(*shape, share=0.9), draw.normal(*shape), _special(draw, *shape))
    x = np.where(np.abs(x) > 1e30, np.sign(x) * np.inf, x).astype("float32")

    def function(x):
        return (
            *(jnp.max(x, axis), jnp.min(x, axis), jnp.nanmax(x, axis), jnp.nansum(x, axis)),
            *(jnp.argmax(x, axis), jnp.argmin(x, axis), jnp.sort(x, axis), jnp.cumsum(x, axis)),
            *(jnp.nanmean(x, axis), jnp.isnan(x).any(axis)),
        )

    return function, (x,)


@program()
def rounding(draw: Draw):
    """Halves go to even numbers, whole numbers stay."""
    dtype = draw.float_type()
    x = (draw.whole(-400, 400, draw.size(1, 90), draw.size(1, 30)) / 4).astype(dtype)

    def function(x):
        return jnp.round(x), jnp.floor(x), jnp.ceil(x), jnp.trunc(x), x % 1, jnp.fmod(x, 3), x // 2

    return function, (x,)


@program()
def trigonometry(draw: Draw):
    x = draw.normal(draw.size(1, 90), draw.size(1, 30), scale=draw.pick((1, 20)))
    y = draw.normal(*x.shape)

    def function(x, y):
        return (
            *(jnp.sin(x), jnp.cos(x), jnp.arctan2(x, y), jnp.hypot(x, y)),
            *(jnp.arcsin(jnp.tanh(y)), jnp.arccos(jnp.tanh(y)), jnp.sinh(y), jnp.cosh(y)),
            *(jnp.arctan(x), jnp.deg2rad(x), jnp.logaddexp(x, y), jax.scipy.special.erfc(y)),
        )

    return function, (x, y)


@program(slack=10)
def powers(draw: Draw):
    x, y = draw.uniform(draw.size(1, 200), low=0.1) * 3, draw.normal(1)

    def function(x, y):
        return x**y, x**3, x**-2, x**0.5, 2.0**x, jnp.exp2(-x), jnp.log2(x), jnp.log10(x), x**0

    return function, (x, y)


@program()
def quantised_product(draw: Draw):
    """Weights of eight bits with a scale for each column, activations scaled by row."""
    rows, width, columns = draw.size(1, 60), draw.size(1, 90), draw.size(1, 60)

    def function(x, w, scale):
        step = jnp.max(jnp.abs(x), 1, keepdims=True) / 127
        q = jnp.clip(jnp.floor(x / step + 0.5), -127, 127).astype(jnp.int8)
        product = jax.lax.dot_general(
            q, w, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32
        )
        return product.astype(jnp.float32) * step * scale, x @ (w.astype(jnp.float32) * scale)

    x = draw.whole(-1000, 1000, rows, width).astype("float32") + 0.125
    w = draw.whole(-127, 128, width, columns, dtype="int8")
    return function, (x, w, draw.uniform(columns, low=0.1))


@program()
def grouped_weights(draw: Draw):
    """Four bits in groups of the depth, with scales and zero points."""
    rows, groups, each, columns = (draw.size(1, high) for high in (40, 6, 16, 50))
    dtype = draw.float_type()

    def function(x, w, scale, zero):
        values = (w.astype(jnp.int32) & 15).reshape(groups, each, columns)
        wide = (values - zero[:, None]).astype(dtype) * scale[:, None]
        return x @ wide.reshape(-1, columns)

    return function, (
        draw.normal(rows, groups * each, dtype=dtype),
        draw.bits(groups * each, columns, dtype="uint8"),
        draw.uniform(groups, columns, dtype=dtype),
        draw.whole(0, 16, groups, columns),
    )


@program(refusals=("documented-refusal",))
def eight_bit_floats(draw: Draw):
    """Operands in eight bits; f8e4m3fn is refused on targets that lack it, as documented."""
    dtype = draw.pick((ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3))
    rows, width, columns = draw.size(1, 60), draw.size(1, 90), draw.size(1, 60)

    def function(x, w):
        product = jnp.matmul(x, w, preferred_element_type=jnp.float32)
        return product, (x.astype(jnp.float32) * 0.5).astype(jnp.bfloat16)

    x, w = draw.normal(rows, width, dtype=dtype), draw.normal(width, columns, dtype=dtype)
    return function, (x, w)


SPECIFICATIONS = (
    *("ij,jk->ik", "bij,bjk->bik", "ij,kj->ki", "bhqd,bkhd->bhqk", "ijk,kl->jil", "i,j->ij"),
    *("ij,ij->", "ii->i", "ij->ji", "bij,jk,bkl->bil", "abc,cd,bde->ae", "ij,j->i", "ijk->k"),
    *("bnqd,nde->bqe", "abcd,dcef->abef", "bi,bj,bk->bijk", "ij,jk,kl,lm->im", "ijj->i"),
    *("bij,bij->b", "aibj,bja->i", "ab,cb,db->acd", "tbh,hcn->btcn"),
)


@program(slack=3)
def einsums(draw: Draw):
    specification = draw.pick(SPECIFICATIONS)
    extents = {letter: draw.size(1, 20) for letter in "abcdefhijklmnqt"}
    dtype = draw.float_type()
    inputs = specification.partition("->")[0].split(",")
    arrays = [draw.normal(*(extents[letter] for letter in one), dtype=dtype) for one in inputs]
    gradient = draw.chance(0.3) and dtype == np.float32

    def function(*arrays):
        return jnp.einsum(specification, *arrays)

    if gradient:
        return jax.grad(lambda *a: jnp.sum(jnp.sin(function(*a)))), arrays
    return function, arrays


@program()
def general_products(draw: Draw):
    """Batches and depths of any places."""
    b, m, k1, k2, n = (draw.size(1, high) for high in (4, 30, 12, 8, 30))
    dtype = draw.float_type()
    x, w = draw.normal(k1, m, b, k2, dtype=dtype), draw.normal(n, k2, k1, b, dtype=dtype)

    def function(x, w):
        return jax.lax.dot_general(
            x, w, (((0, 3), (2, 1)), ((2,), (3,))), preferred_element_type=jnp.float32
        )

    return function, (x, w)


@program()
def vectors_and_outer_products(draw: Draw):
    m, n = draw.size(1, 200), draw.size(1, 200)
    dtype = draw.float_type()

    def function(a, b, x):
        return jnp.outer(a, b), jnp.vdot(a, a), a @ x, x @ b, jnp.kron(a[:3], b[:4])

    return function, (
        draw.normal(m, dtype=dtype),
        draw.normal(n, dtype=dtype),
        draw.normal(m, n, dtype=dtype),
    )


@program(slack=10)
def norms_and_powers(draw: Draw):
    size = draw.size(1, 30)

    def function(x):
        return (
            *(jnp.linalg.norm(x), jnp.linalg.norm(x, 1, axis=0), jnp.linalg.norm(x, jnp.inf)),
            *(jnp.trace(x), jnp.linalg.matrix_power(x, 3), jnp.linalg.multi_dot([x, x, x[:, :1]])),
            jnp.cross(x[:, :1] * jnp.ones(3), jnp.arange(3.0)),
        )

    return function, (draw.normal(size, size, scale=0.5),)


@program(slack=50)
def factorisations(draw: Draw):
    """Of matrices far from singular ones."""
    size = draw.size(1, 12)
    root = draw.normal(size, size)
    matrix = (root @ root.T / size + 2 * np.eye(size)).astype("float32")
    kind = draw.pick(("cholesky", "solve", "inverse", "qr", "determinant"))

    def function(a, b):
        if kind == "cholesky":
            return jnp.linalg.cholesky(a)
        if kind == "solve":
            return jnp.linalg.solve(a, b)
        if kind == "inverse":
            return jnp.linalg.inv(a)
        if kind == "qr":
            return jnp.linalg.qr(a)[1]
        return jnp.linalg.det(a)

    return function, (matrix, draw.normal(size, 3))


@program(slack=20)
def triangular_solves(draw: Draw):
    size, columns = draw.size(1, 30), draw.size(1, 12)
    lower, transposed, left = draw.chance(0.5), draw.chance(0.5), draw.chance(0.5)
    matrix = draw.normal(size, size, scale=0.3 / size**0.5) + 2 * np.eye(size)

    def function(a, b):
        return jax.lax.linalg.triangular_solve(
            a, b, left_side=left, lower=lower, transpose_a=transposed
        )

    b = draw.normal(size, columns) if left else draw.normal(columns, size)
    return function, (matrix.astype("float32"), b)


@program(slack=20)
def newton_schulz(draw: Draw):
    """Muon's update: a matrix made orthogonal by five products."""
    rows, columns = draw.size(2, 60), draw.size(2, 60)
    dtype = draw.float_type()

    def function(g):
        x = g / (jnp.linalg.norm(g.astype(jnp.float32)) + 1e-3).astype(g.dtype)
        for a, b, c in ((3.4445, -4.775, 2.0315),) * 3:
            y = x @ x.T
            x = a * x + (b * y + c * (y @ y)) @ x
        return x

    return function, (draw.normal(rows, columns, dtype=dtype),)


@program(refusals=("hlo-not-compiled",))
def complex_numbers(draw: Draw):
    """Rotary embeddings by complex products, of real arguments and results."""
    rows, width = draw.size(1, 40), draw.size(1, 30)

    def function(a, b, angle):
        z = jax.lax.complex(a, b) * jnp.exp(1j * angle)
        return z.real, z.imag, jnp.abs(z), jnp.angle(z) * 0 + jnp.conj(z).imag

    return function, (draw.normal(rows, width), draw.normal(rows, width), draw.normal(width))


@program()
def polynomials(draw: Draw):
    degree = draw.size(1, 8)

    def function(x, c):
        powers = jnp.vander(x, degree)
        return (
            jnp.polyval(c, x),
            powers @ c,
            jnp.interp(x, jnp.linspace(-1, 1, degree + 1), c_more(c)),
        )

    def c_more(c):
        return jnp.concatenate([c, c[:1]])

    return function, (draw.uniform(draw.size(1, 100), low=-0.99), draw.normal(degree))


@program()
def finite_differences(draw: Draw):
    """Steps of the heat equation with edges held, and a gradient's magnitude."""
    height, width, steps = draw.size(3, 40), draw.size(3, 40), draw.size(1, 6)

    def function(u, rate):
        def step(_, u):
            inner = u[1:-1, 1:-1]
            around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
            return u.at[1:-1, 1:-1].set(inner + rate * (around - 4 * inner))

        u = jax.lax.fori_loop(0, steps, step, u)
        dy, dx = jnp.gradient(u)
        return u, jnp.sqrt(dy * dy + dx * dx + 1e-6), jnp.diff(u, axis=0)

    return function, (draw.normal(height, width), jnp.float32(0.2))
