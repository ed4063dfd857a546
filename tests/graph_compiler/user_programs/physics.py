"""Simulations: stencils, particles, grids, and what integrates them over time."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from user_programs.drawing import Draw, program


@program(slack=5)
def heat_equation(draw: Draw):
    """Explicit steps in a box whose edge keeps its temperature."""
    height, width, steps = draw.size(3, 40), draw.size(3, 60), draw.size(1, 6)

    def function(u, conductivity):
        def step(u, _):
            inner = u[1:-1, 1:-1]
            flow = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * inner
            return u.at[1:-1, 1:-1].add(0.1 * conductivity[1:-1, 1:-1] * flow), jnp.max(jnp.abs(u))

        return jax.lax.scan(step, u, None, length=steps)

    return function, (draw.normal(height, width), draw.uniform(height, width))


@program(slack=20)
def wave_equation_gradient(draw: Draw):
    """The gradient of what a sensor records, by the medium's speed."""
    size, steps = draw.size(4, 60), draw.size(1, 5)

    def function(speed, u, weights):
        def recorded(speed):
            def step(state, _):
                now, before = state
                second = jnp.roll(now, 1, 1) + jnp.roll(now, -1, 1) - 2 * now
                later = 2 * now - before + 0.2 * speed**2 * second
                return (later, now), later[:, size // 2]

            _, found = jax.lax.scan(step, (u, u), None, length=steps)
            return jnp.sum(found * weights)

        return jax.value_and_grad(recorded)(speed)

    rows = draw.size(1, 10)
    return function, (draw.uniform(rows, size), draw.normal(rows, size), draw.normal(steps, rows))


@program(slack=20)
def lattice_boltzmann(draw: Draw):
    """A fluid's nine directions: relaxation, then each moves to its neighbour."""
    height, width = draw.size(3, 24), draw.size(3, 40)
    moves = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
    shares = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4, np.float32)
    ways = np.array(moves, np.float32)

    def function(f, solid):
        def step(f, _):
            density = jnp.sum(f, 0)
            speed = jnp.einsum("kd,kxy->dxy", ways, f) / density
            along = jnp.einsum("kd,dxy->kxy", ways, speed)
            squares = jnp.sum(speed**2, 0)
            rest = 1 + 3 * along + 4.5 * along**2 - 1.5 * squares
            f = f + 0.6 * (density * shares[:, None, None] * rest - f)
            f = jnp.stack([jnp.roll(one, move, (0, 1)) for one, move in zip(f, moves)])
            back = f[jnp.array([0, 3, 4, 1, 2, 7, 8, 5, 6])]
            return jnp.where(solid, back, f), density.mean()

        return jax.lax.scan(step, f, None, length=3)

    f = 1 + draw.uniform(9, height, width)
    return function, (f * shares[:, None, None], draw.flags(height, width, share=0.1))


@program(slack=50)
def molecular_dynamics(draw: Draw):
    """Lennard-Jones particles in a periodic box, forces by differentiation, velocity Verlet."""
    count, box = draw.size(2, 30), 8.0

    def energy(x):
        apart = x[:, None] - x[None]
        apart = apart - box * jnp.round(apart / box)
        square = jnp.sum(apart**2, -1) + jnp.eye(count) * 1e3 + 1.0
        inverse = 1 / square**3
        return jnp.sum(jnp.where(square < 9.0, inverse**2 - inverse, 0.0)) * 2

    def function(x, v):
        force = jax.grad(energy)

        def step(state, _):
            x, v, f = state
            v = v - 0.005 * f
            x = (x + 0.01 * v) % box
            f = force(x)
            v = v - 0.005 * f
            return (x, v, f), jnp.sum(v**2)

        (x, v, f), kinetic = jax.lax.scan(step, (x, v, force(x)), None, length=3)
        return v, f, kinetic

    # Far enough apart that none is at the cut.
    x = draw.random.permutation(512)[:count]
    x = np.stack([x // 64, x // 8 % 8, x % 8], 1).astype(np.float32) + 0.25
    return function, (x + draw.uniform(count, 3) * np.float32(0.3), draw.normal(count, 3))


@program()
def ising_sweeps(draw: Draw):
    """Two colours of a board in turns, accepted by random numbers."""
    half = draw.size(1, 20)
    size = 2 * half

    def function(spins, key):
        board = (jnp.arange(size)[:, None] + jnp.arange(size)) % 2

        def sweep(spins, key):
            for colour in (0, 1):
                key, used = jax.random.split(key)
                around = sum(jnp.roll(spins, by, axis) for by in (1, -1) for axis in (0, 1))
                cost = 2 * spins * around
                chance = jnp.array([1.0, 1.0, 1.0, 0.17, 0.03])[jnp.clip(cost // 4 + 2, 0, 4)]
                turned = jax.random.uniform(used, spins.shape) < chance
                spins = jnp.where(turned & (board == colour), -spins, spins)
            return spins, jnp.sum(spins)

        return jax.lax.scan(sweep, spins, jax.random.split(key, 3))

    spins = np.where(draw.flags(size, size), 1, -1).astype(np.int32)
    return function, (spins, draw.bits(2, dtype=np.uint32))


@program(slack=50)
def particles_on_a_grid(draw: Draw):
    """Particle in cell: charges spread over a grid, a field by neighbours, pushed back."""
    cells, count = draw.size(3, 40), draw.size(1, 200)

    def function(x, v):
        left = jnp.floor(x).astype(jnp.int32)
        share = x - left
        right = (left + 1) % cells
        charge = jnp.zeros(cells).at[left].add(1 - share).at[right].add(share)
        charge = charge - charge.mean()
        field = jnp.cumsum(charge) - jnp.mean(jnp.cumsum(charge))
        v = v + 0.01 * (field[left] * (1 - share) + field[right] * share)
        return charge, field, v

    x = draw.uniform(count) * np.float32(cells - 0.01)
    return function, (x, draw.normal(count))


@program(slack=50)
def adaptive_integrator(draw: Draw):
    """Runge-Kutta steps of two orders, as long as the difference between them allows."""
    size = draw.size(1, 30)

    def function(w, y):
        def slope(y):
            return jnp.tanh(w @ y) - 0.5 * y

        def open(state):
            return (state[0] < 1.0) & (state[3] < 40)

        def step(state):
            t, y, h, number = state
            h = jnp.minimum(h, 1.0 - t + 1e-3)
            a = slope(y)
            b = slope(y + 0.5 * h * a)
            c = slope(y + 0.75 * h * b)
            found = y + h * (2 * a + 3 * b + 4 * c) / 9
            d = slope(found)
            error = jnp.max(jnp.abs(h * (-5 * a / 72 + b / 12 + c / 9 - d / 8)))
            good = error < 0.125
            return jnp.where(good, t + h, t), jnp.where(good, found, y), h * 0.5, number + 1

        _, y, _, number = jax.lax.while_loop(open, step, (0.0, y, 0.5, 0))
        return y, number

    return function, (draw.normal(size, size, scale=0.3), draw.normal(size))


@program(slack=50)
def multigrid_cycle(draw: Draw):
    """Jacobi smoothing on three grids, with restriction and prolongation."""
    size = 8 * draw.size(1, 6)

    def laplacian(u):
        p = jnp.pad(u, 1)
        return 4 * u - p[:-2, 1:-1] - p[2:, 1:-1] - p[1:-1, :-2] - p[1:-1, 2:]

    def smoothed(u, f):
        return jax.lax.fori_loop(0, 2, lambda _, u: u + 0.2 * (f - laplacian(u)), u)

    def cycle(f, depth):
        u = smoothed(jnp.zeros_like(f), f)
        if depth:
            n = f.shape[0] // 2
            rest = (f - laplacian(u)).reshape(n, 2, n, 2).sum((1, 3))
            u = u + jnp.repeat(jnp.repeat(cycle(rest, depth - 1), 2, 0), 2, 1)
        return smoothed(u, f)

    return (lambda f: cycle(f, 2)), (draw.normal(size, size),)


@program(slack=50)
def levels_of_a_body(draw: Draw):
    """Signed distances of shapes, marched along rays, and shaded by their gradient."""
    rays = draw.size(1, 100)

    def distance(p):
        ball = jnp.linalg.norm(p - jnp.array([0.0, 0.0, 3.0])) - 1.0
        q = jnp.abs(p - jnp.array([1.0, 0.5, 4.0])) - 0.5
        box = jnp.linalg.norm(jnp.maximum(q, 0) + 1e-3) + jnp.minimum(jnp.max(q), 0)
        mix = jnp.clip(0.5 + 0.5 * (box - ball), 0, 1)
        return box * (1 - mix) + ball * mix - mix * (1 - mix)

    def function(directions):
        def march(d):
            d = d / jnp.linalg.norm(d)
            t = jax.lax.fori_loop(0, 8, lambda _, t: t + 0.7 * distance(t * d), jnp.float32(0))
            normal = jax.grad(distance)(t * d)
            return t, jnp.maximum(normal @ jnp.array([0.6, 0.0, -0.8]), 0)

        return jax.vmap(march)(directions)

    rays = draw.normal(rays, 3, scale=0.2) + np.array([0, 0, 1], np.float32)
    return function, (rays,)


@program(slack=20)
def volume_rendering(draw: Draw):
    """Rays through a radiance field: encoded positions, a small network, transmittance; with the
    gradient of its weights."""
    rays, points, width = draw.size(1, 20), draw.size(2, 20), draw.size(2, 30)

    def encoded(x):
        waves = x[..., None] * (2.0 ** jnp.arange(3))
        both = jnp.concatenate([jnp.sin(waves), jnp.cos(waves)], -1)
        return both.reshape(*x.shape[:-1], -1)

    def function(origins, ways, w0, w1, wanted):
        depths = jnp.linspace(0.1, 1.0, points)

        def loss(w0, w1):
            x = origins[:, None] + ways[:, None] * depths[:, None]
            found = jax.nn.relu(encoded(x) @ w0) @ w1
            density = jax.nn.softplus(found[..., 0])
            alpha = 1 - jnp.exp(-density * (0.9 / points))
            ones = jnp.ones_like(alpha[:, :1])
            left = jnp.cumprod(jnp.concatenate([ones, 1 - alpha[:, :-1]], 1), 1)
            colours = jnp.sum((left * alpha)[..., None] * jax.nn.sigmoid(found[..., 1:]), 1)
            return jnp.mean((colours - wanted) ** 2)

        return jax.value_and_grad(loss, argnums=(0, 1))(w0, w1)

    return function, (
        draw.normal(rays, 3),
        draw.normal(rays, 3),
        draw.normal(18, width, scale=0.3),
        draw.normal(width, 4, scale=0.5),
        draw.uniform(rays, 3),
    )


@program(slack=2)
def hashed_grid(draw: Draw):
    """Features of the corners of grids of several resolutions, found by a hash of integers."""
    points, table = draw.size(1, 100), 1 << draw.size(4, 9)

    def function(x, features):
        found = []
        for level, own in enumerate(features):
            scaled = x * (4 << level)
            low = jnp.floor(scaled)
            share, low = scaled - low, low.astype(jnp.uint32)
            total = 0.0
            for corner in range(8):
                side = jnp.array([corner & 1, corner >> 1 & 1, corner >> 2], jnp.uint32)
                place = (low + side) * jnp.array([1, 2654435761, 805459861], jnp.uint32)
                place = (place[:, 0] ^ place[:, 1] ^ place[:, 2]) % table
                weight = jnp.prod(jnp.where(side == 1, share, 1 - share), 1)
                total = total + own[place] * weight[:, None]
            found.append(total)
        return jnp.concatenate(found, 1)

    return function, (draw.uniform(points, 3), draw.normal(3, table, 2))
