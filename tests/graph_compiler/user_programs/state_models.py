"""Models with a state: decays, memories that learn while they read, and gated recurrences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from user_programs.drawing import Draw, program
from user_programs.modern_attention import COMPLEX


@program(slack=10)
def matrix_memory(draw: Draw):
    """mLSTM: a matrix written by exponential gates, kept in range by the gates' running maximum."""
    length, heads, width = (draw.size(1, n) for n in (16, 3, 12))

    def function(q, k, v, write, forget):
        def step(state, one):
            memory, normal, top = state
            q, k, v, write, forget = one
            forget = jax.nn.log_sigmoid(forget)
            new = jnp.maximum(forget + top, write)
            keep, add = jnp.exp(forget + top - new), jnp.exp(write - new)
            k = k / width**0.5
            memory = keep[:, None, None] * memory + add[:, None, None] * v[..., None] * k[:, None]
            normal = keep[:, None] * normal + add[:, None] * k
            below = jnp.maximum(jnp.abs(jnp.sum(normal * q, -1)), jnp.exp(-new))
            return (memory, normal, new), jnp.einsum("hvk,hk->hv", memory, q) / below[:, None]

        begin = (
            jnp.zeros((heads, width, width)),
            jnp.zeros((heads, width)),
            jnp.full(heads, -10.0),
        )
        return jax.lax.scan(step, begin, (q, k, v, write, forget))

    qkv = (draw.normal(length, heads, width) for _ in range(3))
    return function, (*qkv, draw.normal(length, heads), draw.normal(length, heads) + 3)


@program(slack=10)
def scalar_memory(draw: Draw):
    """sLSTM: exponential gates with a normaliser, recurrent weights by heads, and its gradients."""
    length, batch, heads, width = (draw.size(1, n) for n in (8, 4, 3, 6))

    def function(x, recurrent):
        def step(state, one):
            cell, normal, hidden, top = state
            gates = one + jnp.einsum("bhd,hdge->bhge", hidden, recurrent)
            write, forget, value, out = jnp.moveaxis(gates, 2, 0)
            new = jnp.maximum(forget + top, write)
            write, forget = jnp.exp(write - new), jnp.exp(forget + top - new)
            cell = forget * cell + write * jnp.tanh(value)
            normal = forget * normal + write
            hidden = jax.nn.sigmoid(out) * cell / normal
            return (cell, normal, hidden, new), hidden

        def loss(recurrent):
            zero = jnp.zeros((batch, heads, width))
            _, hidden = jax.lax.scan(step, (zero, zero + 1, zero, zero), x)
            return jnp.mean(hidden**2)

        return jax.value_and_grad(loss)(recurrent)

    recurrent = draw.normal(heads, width, 4, width, scale=0.3)
    return function, (draw.normal(length, batch, heads, 4, width), recurrent)


@program(slack=10)
def retained_in_chunks(draw: Draw):
    """Retention: within a chunk a matrix of decays, between chunks a state; rotated heads."""
    chunk, chunks, heads, width = (draw.size(1, n) for n in (10, 4, 4, 10))

    def function(q, k, v):
        decay = 1 - 2.0 ** (-3 - jnp.arange(heads))
        at = jnp.arange(chunk)
        apart = at[:, None] - at
        mask = jnp.where(apart >= 0, decay[:, None, None] ** jnp.maximum(apart, 0), 0)

        def step(state, one):
            q, k, v = one
            inside = jnp.einsum("hqk,hkd->hqd", jnp.einsum("hqd,hkd->hqk", q, k) * mask, v)
            before = jnp.einsum("hqd,hde->hqe", q, state) * decay[:, None, None] ** (
                at[:, None] + 1
            )
            later = decay[:, None] ** (chunk - 1 - at)
            state = state * decay[:, None, None] ** chunk
            state = state + jnp.einsum("hkd,hk,hke->hde", k, later, v)
            return state, inside + before

        state, out = jax.lax.scan(step, jnp.zeros((heads, width, width)), (q, k, v))
        mean = out.mean(-1, keepdims=True)
        return state, (out - mean) * jax.lax.rsqrt(out.var(-1, keepdims=True) + 1e-2)

    return function, (draw.normal(chunks, heads, chunk, width) for _ in range(3))


@program(slack=20)
def gated_linear_in_chunks(draw: Draw):
    """Decays by channel and token, accumulated in logarithms inside a chunk, with gradients."""
    chunk, chunks, heads, width = (draw.size(1, n) for n in (8, 4, 2, 8))

    def function(q, k, v, gates):
        def output(q, k, v, gates):
            logs = jnp.cumsum(jax.nn.log_sigmoid(gates) / 4, axis=2)

            def step(state, one):
                q, k, v, logs = one
                causal = jnp.tril(jnp.ones((chunk, chunk), bool))
                near = jnp.exp(
                    jnp.where(causal[..., None], logs[:, :, None] - logs[:, None], -1e30)
                )
                scores = jnp.einsum("hqd,hqkd,hkd->hqk", q, near, k)
                out = jnp.einsum("hqk,hke->hqe", scores, v)
                out = out + jnp.einsum("hqd,hde->hqe", q * jnp.exp(logs), state)
                last = logs[:, -1:]
                state = state * jnp.exp(last).swapaxes(1, 2)
                return state + jnp.einsum("hkd,hke->hde", k * jnp.exp(last - logs), v), out

            return jax.lax.scan(step, jnp.zeros((heads, width, width)), (q, k, v, logs))[1]

        loss = lambda *given: jnp.sum(jnp.tanh(output(*given)))  # noqa: E731
        return output(q, k, v, gates), jax.grad(loss, argnums=(1, 3))(q, k, v, gates)

    return function, (draw.normal(chunks, heads, chunk, width, scale=0.5) for _ in range(4))


@program(slack=10)
def state_that_evolves(draw: Draw):
    """RWKV-7: a state turned by a diagonal and a rank-one matrix, both of the token."""
    length, heads, width = (draw.size(1, n) for n in (14, 3, 10))

    def function(r, w, k, v, a, bonus):
        def step(state, one):
            r, w, k, v, a = one
            decay = jnp.exp(-np.float32(0.606531) * jax.nn.sigmoid(w))
            rate = jax.nn.sigmoid(a)
            way = k / jnp.sqrt(jnp.sum(k * k, -1, keepdims=True) + 1e-3)
            k = k * (1 + (rate - 1) * 0.5)
            seen = jnp.einsum("hvk,hk->hv", state, -way)
            state = state * decay[:, None] + seen[..., None] * (way * rate)[:, None]
            state = state + v[..., None] * k[:, None]
            out = jnp.einsum("hvk,hk->hv", state, r)
            return state, out + jnp.sum(r * k * bonus, -1, keepdims=True) * v

        return jax.lax.scan(step, jnp.zeros((heads, width, width)), (r, w, k, v, a))

    tokens = (draw.normal(length, heads, width, scale=0.5) for _ in range(5))
    return function, (*tokens, draw.normal(heads, width))


@program(slack=10)
def memory_that_learns(draw: Draw):
    """Test-time training: the hidden state is a layer that takes a step of gradient a token."""
    length, width, inner, batch = (draw.size(1, n) for n in (8, 8, 10, 2))

    def function(keys, values, queries, rates, first, second):
        def loss(weights, k, v):
            first, second = weights
            return jnp.sum((jax.nn.gelu(k @ first) @ second - v) ** 2)

        def step(carry, one):
            weights, momentum = carry
            k, v, q, rate = one
            gradient = jax.grad(loss)(weights, k, v)
            momentum = jax.tree.map(lambda m, g: 0.8 * m + g, momentum, gradient)
            weights = jax.tree.map(lambda w, m: 0.99 * w - rate * m, weights, momentum)
            return (weights, momentum), jax.nn.gelu(q @ weights[0]) @ weights[1]

        def one(k, v, q, rate):
            begin = (first, second)
            still = jax.tree.map(jnp.zeros_like, begin)
            return jax.lax.scan(step, (begin, still), (k, v, q, rate))[1]

        return jax.vmap(one)(keys, values, queries, rates)

    tokens = (draw.normal(batch, length, width) for _ in range(3))
    return function, (
        *tokens,
        draw.uniform(batch, length) * np.float32(0.02),
        *(draw.normal(width, inner, scale=0.3), draw.normal(inner, width, scale=0.3)),
    )


@program(slack=10)
def gated_linear_recurrence(draw: Draw):
    """RG-LRU: decays by gates, an associative scan, a short convolution before it, gradients."""
    batch, length, width = (draw.size(1, n) for n in (3, 40, 16))

    def function(x, taps, gates, rate):
        def output(x, rate):
            wide = jnp.pad(x, ((0, 0), (3, 0), (0, 0)))
            x = sum(wide[:, at : at + length] * taps[at] for at in range(4))
            write, forget = jax.nn.sigmoid(x * gates[0]), jax.nn.sigmoid(x * gates[1])
            log = -8 * jax.nn.softplus(rate) * forget
            scale = jnp.sqrt(-jnp.expm1(2 * log))

            def joined(a, b):
                return a[0] + b[0], a[1] * jnp.exp(b[0]) + b[1]

            return jax.lax.associative_scan(joined, (log, scale * write * x), axis=1)[1]

        value = lambda *given: jnp.sum(jnp.sin(output(*given)))  # noqa: E731
        return output(x, rate), jax.grad(value, argnums=(0, 1))(x, rate)

    return function, (
        *(draw.normal(batch, length, width), draw.normal(4, width, scale=0.5)),
        *(draw.normal(2, width), draw.normal(width)),
    )


@program(slack=10)
def one_token_of_a_state_space(draw: Draw):
    """Mamba-2 decoding: taps move on by one, then the state; groups share inputs and outputs."""
    batch, groups, share, width, states, taps = (draw.size(1, n) for n in (3, 2, 3, 8, 10, 4))
    heads = groups * share
    channels = heads * width + 2 * groups * states

    def function(past, state, token, kernel, bias, a_log, step_bias, d):
        mixed, gate, dt = jnp.split(token, [channels, channels + heads * width], axis=1)
        past = jnp.concatenate([past[:, 1:], mixed[:, None]], 1)
        mixed = jax.nn.silu(jnp.einsum("btc,tc->bc", past, kernel) + bias)
        x, b, c = jnp.split(mixed, [heads * width, heads * width + groups * states], axis=1)
        x = x.reshape(batch, heads, width)
        b, c = (jnp.repeat(one.reshape(batch, groups, states), share, axis=1) for one in (b, c))
        dt = jax.nn.softplus(dt + step_bias)
        decay = jnp.exp(-dt * jnp.exp(a_log))
        state = state * decay[..., None, None]
        state = state + jnp.einsum("bh,bhp,bhn->bhpn", dt, x, b)
        y = jnp.einsum("bhpn,bhn->bhp", state, c) + d[:, None] * x
        y = y.reshape(batch, -1) * jax.nn.silu(gate)
        y = y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-3)
        return past, state, y

    return function, (
        draw.normal(batch, taps, channels),
        draw.normal(batch, heads, width, states),
        draw.normal(batch, channels + heads * width + heads),
        *(draw.normal(taps, channels), draw.normal(channels)),
        *(draw.normal(heads) for _ in range(3)),
    )


@program(slack=20, refusals=COMPLEX)
def diagonal_state_space(draw: Draw):
    """S4D: a kernel of complex exponentials, then a convolution by a matrix of its shifts."""
    width, states, length = draw.size(1, 6), draw.size(1, 8), draw.size(2, 30)

    def function(log_step, a_real, a_imag, c, u, skip):
        step = jnp.exp(log_step)
        a = -jnp.exp(a_real) + 1j * a_imag
        da = a * step[:, None]
        weights = jax.lax.complex(c[..., 0], c[..., 1]) * (jnp.exp(da) - 1) / a
        powers = jnp.exp(da[..., None] * jnp.arange(length))
        kernel = 2 * jnp.einsum("hn,hnl->hl", weights, powers).real
        apart = jnp.arange(length)[:, None] - jnp.arange(length)
        matrix = jnp.where(apart >= 0, kernel[:, jnp.maximum(apart, 0)], 0)
        return jax.nn.gelu(jnp.einsum("hqk,hk->hq", matrix, u) + skip[:, None] * u)

    return function, (
        draw.normal(width, scale=0.5) - 2,
        draw.normal(width, states, scale=0.3),
        np.broadcast_to(np.arange(states, dtype=np.float32) * 3, (width, states)).copy(),
        draw.normal(width, states, 2),
        draw.normal(width, length),
        draw.normal(width),
    )


@program(slack=5)
def dilated_gates(draw: Draw):
    """WaveNet: gated causal convolutions of growing dilation, residual and skip connections."""
    batch, length, channels, depth = (draw.size(1, n) for n in (2, 60, 10, 4))

    def function(x, weights, mixers, condition):
        skips = 0
        for level in range(depth):
            wide = jnp.pad(x, ((0, 0), (2**level, 0), (0, 0)))
            both = jax.lax.conv_general_dilated(
                wide,
                weights[level],
                (1,),
                "VALID",
                rhs_dilation=(2**level,),
                dimension_numbers=("NWC", "WIO", "NWC"),
            )
            value, gate = jnp.split(both + condition[:, level, None], 2, axis=-1)
            z = jnp.tanh(value) * jax.nn.sigmoid(gate)
            more, skip = jnp.split(z @ mixers[level], 2, axis=-1)
            x, skips = x + more, skips + skip
        return jax.nn.relu(skips)

    return function, (
        draw.normal(batch, length, channels),
        draw.normal(depth, 2, channels, 2 * channels, scale=0.3),
        draw.normal(depth, channels, 2 * channels, scale=0.3),
        draw.normal(batch, depth, 2 * channels),
    )


@program(slack=10)
def equilibrium_of_a_layer(draw: Draw):
    """A fixed point by Anderson's mixing of the last steps, its gradient by a Neumann series."""
    batch, width, window = draw.size(1, 6), draw.size(1, 12), draw.size(2, 4)

    def function(w, x):
        def layer(w, z):
            return jnp.tanh(z @ w + x)

        def solved(w):
            def step(kept, number):
                zs, fs = kept
                difference = (fs - zs).reshape(window, -1)
                gram = difference @ difference.T + 1e-1 * jnp.eye(window)
                weights = jnp.linalg.solve(gram, jnp.ones(window))
                weights = weights / jnp.sum(weights)
                z = jnp.einsum("m,mbd->bd", weights, fs)
                at = number % window
                return (zs.at[at].set(z), fs.at[at].set(layer(w, z))), z

            zs = jnp.zeros((window, batch, width))
            fs = jnp.broadcast_to(layer(w, zs[0]), zs.shape)
            return jax.lax.scan(step, (zs, fs), jnp.arange(6))[1][-1]

        z = solved(w)
        _, back = jax.vjp(lambda z: layer(w, z), z)
        given = jnp.cos(z)
        adjoint = jax.lax.fori_loop(0, 5, lambda _, u: given + back(u)[0], given)
        _, to_weights = jax.vjp(lambda w: layer(w, z), w)
        return z, to_weights(adjoint)[0]

    return function, (draw.normal(width, width, scale=0.3 * width**-0.5), draw.normal(batch, width))


@program(slack=10)
def smoothed_series(draw: Draw):
    """Holt and Winters: level, trend and season by a scan, forecasts, gradients of the rates."""
    series, season, periods = draw.size(1, 8), draw.size(1, 7), draw.size(2, 4)
    length = season * periods

    def function(values, rates):
        def errors(rates):
            alpha, beta, gamma = jax.nn.sigmoid(rates)

            def step(state, value):
                level, trend, seasons = state
                forecast = (level + trend) * seasons[0]
                new = alpha * value / seasons[0] + (1 - alpha) * (level + trend)
                trend = beta * (new - level) + (1 - beta) * trend
                last = gamma * value / new + (1 - gamma) * seasons[0]
                seasons = jnp.concatenate([seasons[1:], last[None]])
                return (new, trend, seasons), value - forecast

            begin = values[0], jnp.zeros(series), jnp.ones((season, series))
            state, off = jax.lax.scan(step, begin, values)
            ahead = jnp.arange(1, 4)[:, None]
            level, trend, seasons = state
            return jnp.mean(off**2), (level + ahead * trend) * seasons[(ahead[:, 0] - 1) % season]

        return jax.value_and_grad(errors, has_aux=True)(rates)

    return function, (draw.uniform(length, series) + np.float32(2), draw.normal(3, series))
