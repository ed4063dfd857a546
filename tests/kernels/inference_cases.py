"""Kernels of neuronx-distributed-inference: caches, attention, and the gated delta rule."""

from __future__ import annotations

from functools import partial

import ml_dtypes
import numpy as np
from kernel_case import Case
from kernel_formulas import attention, gated_delta_rule, rms_norm, rotate_partly, softmax, unit_rows

BFLOAT16 = ml_dtypes.bfloat16
SOURCE = "src/neuronx_distributed_inference"
DELTANET = "contrib/models/Qwen3.5-2B/src/nki_kernels"
FUSED = f"{DELTANET}/nki_deltanet_fused.py"
VIDEO = "contrib/models/ltx2-video-audio/src"
D = 128
MASKS = tuple(
    mask.astype(np.float32) for mask in (np.tril(np.ones((D, D)), -1), np.eye(D), np.tri(D))
)
"""Strictly lower triangular, diagonal, both."""


def floats(*arrays):
    return tuple(np.asarray(array, np.float32) for array in arrays)


# -- caches ---------------------------------------------------------------------------------------


def rolling_buffer(random):
    buffer, states = floats(random.standard_normal((4, 6, 32)), random.standard_normal((3, 32)))
    return buffer, states, np.array([2, 0, 3], np.int32), np.array([5, 1, 0], np.int32)


def buffer_with_states(buffer, states, batches, positions):
    buffer = buffer.copy()
    buffer[batches, positions] = states
    return buffer


def key_value_cache(random):
    k, v = random.standard_normal((2, 1, 2, 5, 16))
    k_prior, v_prior = random.standard_normal((2, 3, 2, 8, 16))
    return *floats(k, v, k_prior, v_prior), np.array([1], np.int32)


def cache_with_batch(k, v, k_prior, v_prior, batch):
    k_prior, v_prior = k_prior.copy(), v_prior.copy()
    k_prior[batch, :, : k.shape[2]], v_prior[batch, :, : v.shape[2]] = k, v
    return k_prior, v_prior


def parts(random):
    return *floats(random.standard_normal((8, 3, 7))), np.array([2], np.int32), 4


def part_of_rank(tensor, rank, parts):
    return np.split(tensor, parts)[rank[0]]


CACHES = (
    Case(
        f"{SOURCE}/modules/eagle/hidden_state.py",
        "rolling_buffer_set_state",
        rolling_buffer,
        buffer_with_states,
        0,
    ),
    *(
        case
        for cores in (1, 2)
        for case in (
            Case(
                f"{SOURCE}/modules/kvcache/utils.py",
                "write_kv_cache_at_batch_kernel",
                key_value_cache,
                cache_with_batch,
                0,
                cores=cores,
                label=f"{cores} cores",
                needs="--nki-library",
            ),
            Case(
                f"{SOURCE}/utils/distributed.py",
                "split_along_dim0_kernel",
                parts,
                part_of_rank,
                0,
                cores=cores,
                label=f"{cores} cores",
                needs="--nki-library",
            ),
        )
    ),
)


# -- attention ------------------------------------------------------------------------------------


def latent_inputs(random):
    heads, batch, length, rope, compressed, values = 2, 2, 640, 64, 512, 256
    q_pe, q_nope = (
        random.standard_normal((heads * batch, rope)),
        random.standard_normal((heads * batch, compressed)) / 4,
    )
    cache = random.standard_normal((batch, length, rope + compressed))
    absorb = random.standard_normal((heads, values, compressed)) / 16
    mask = (random.random((heads * batch, length)) < 0.75).astype(np.uint8)
    half = (x.astype(BFLOAT16) for x in (q_pe, q_nope, cache, absorb))
    return *half, mask


def latent_attention(q_pe, q_nope, cache, absorb, mask, softmax_scale, n_heads, seq_len):
    q = np.concatenate([q_pe, q_nope], axis=1).astype(np.float64)
    cache, absorb = cache.astype(np.float64)[:, :seq_len], absorb.astype(np.float64)
    outputs = []
    for i, query in enumerate(q):
        rows = cache[i // n_heads]
        weights = softmax(rows @ query * softmax_scale + (1.0 - mask[i]) * -1e9)
        outputs.append(absorb[i % n_heads] @ (weights @ rows[:, q_pe.shape[1] :]))
    return np.stack(outputs)


def cross_inputs(dtype, random):
    q, k, v = (random.standard_normal((2, n, D)).astype(dtype) for n in (256, 1024, 1024))
    bias = np.where(random.random((2, 1024)) < 0.7, 0, -10000).astype(dtype)
    return (q.astype(np.float64) * D**-0.5).astype(dtype), k, v, bias


def cross_attention(q, k, v, bias):
    return attention(q, k, v, bias.astype(np.float64)[:, None, :])


PREFILL = {"scale": 0.25, "causal_mask": False, "tp_k": True}


def prefill_inputs(random):
    q, k, v = (random.standard_normal((2, n, 64)).astype(BFLOAT16) for n in (384, 1152, 1152))
    bias = np.where(random.random((2, 1152)) < 0.7, 0, -10000).astype(np.float32)
    return q, k, v, bias


def prefill_attention(q, k, v, bias, scale, **_):
    """The bias is added before the scale multiplies."""
    return attention(q.astype(np.float64) * scale, k, v, scale * bias[:, None, :])


ATTENTION = (
    Case(
        "contrib/models/GLM-5.2/src/mla_attention_nki_kernel.py",
        "mla_attention_tkg",
        latent_inputs,
        latent_attention,
        2e-2,
        named={"softmax_scale": 0.0625, "n_heads": 2, "seq_len": 640},
    ),
    *(
        Case(
            f"{VIDEO}/nki_cross_attention_kernel.py",
            "cross_attn_kernel",
            partial(cross_inputs, dtype),
            cross_attention,
            tolerance,
            label=np.dtype(dtype).name,
        )
        for dtype, tolerance in ((np.float32, 1e-5), (BFLOAT16, 1e-2))
    ),
    *(
        Case(
            f"{VIDEO}/attention_cte_bias.py",
            "attention_cte_with_bias",
            prefill_inputs,
            prefill_attention,
            2e-2,
            cores=cores,
            label=f"{cores} cores",
            named=PREFILL,
            needs="--nki-library",
            by_name=("q", "k", "v", "bias"),
        )
        for cores in (1, 2)
    ),
)


# -- the gated delta rule -------------------------------------------------------------------------


def tokens(random, count, unit=True):
    """query, key, value, log decay and beta of so many tokens of one head."""
    query, key, value = random.standard_normal((3, count, D))
    if unit:
        query, key = unit_rows(query) * D**-0.5, unit_rows(key)
    log_decay = -random.uniform(0.01, 0.2, count)
    return query, key, value, log_decay, random.uniform(0.1, 0.9, count)


def state(random, *heads):
    return random.standard_normal((*heads, D, D)) / 4


def across(column):
    """One value a token for each of 128 columns."""
    return np.repeat(column[:, None], D, axis=1)


def steps(heads, random):
    query, key, value, decay, beta = tokens(random, heads)
    rows = state(random, heads).reshape(heads * D, D)
    return floats(query, key, value, decay[:, None], beta[:, None], rows)


def each_head_one_token(query, key, value, decay, beta, states):
    heads = range(len(query))
    found = [
        gated_delta_rule(
            query[[h]], key[[h]], value[[h]], decay[h], beta[h], states[D * h : D * (h + 1)]
        )
        for h in heads
    ]
    return np.concatenate([o for o, _ in found]), np.concatenate([s for _, s in found])


def recurrent(count, with_state, random):
    query, key, value, decay, beta = tokens(random, count)
    given = (state(random),) if with_state else ()
    return floats(query, key, value, across(decay), across(beta), *given)


def recurrence(query, key, value, decay, beta, state=None):
    start = np.zeros((D, D)) if state is None else state
    return gated_delta_rule(query, key, value, decay[:, 0], beta[:, 0], start)


def outputs_of_recurrence(*inputs):
    return recurrence(*inputs)[0]


def chunk(random):
    query, key, value, decay, beta = tokens(random, D)
    total = np.cumsum(decay.astype(np.float32))
    last = np.full(D, total[-1])
    given = query, key, value, across(beta), across(total), across(last), state(random)
    strict, identity, lower = MASKS
    return *floats(*given), strict, identity, lower


def chunk_recurrence(query, key, value, beta, total, last, state, *_):
    decay = np.diff(total[:, 0].astype(np.float64), prepend=0)
    return gated_delta_rule(query, key, value, decay, beta[:, 0], state)


def columns(decay, beta):
    return decay[..., None], beta[..., None]


def fused(unit, random):
    query, key, value, decay, beta = tokens(random, 3 * D, unit)
    return *floats(query, key, value, *columns(decay, beta), state(random)), *MASKS


def normalised(query, key):
    return unit_rows(query) * D**-0.5, unit_rows(key)


def fused_recurrence(query, key, value, decay, beta, state, *_):
    return gated_delta_rule(*normalised(query, key), value, decay[:, 0], beta[:, 0], state)


def legacy_recurrence(query, key, value, decay, beta, state, *_):
    return gated_delta_rule(query, key, value, decay[:, 0], beta[:, 0], state)


def heads_of_tokens(random):
    each = [tokens(random, 2 * D, unit=False) for _ in range(2)]
    query, key, value, decay, beta = map(np.stack, zip(*each))
    return *floats(query, key, value, *columns(decay, beta), state(random, 2)), *MASKS


def each_head(query, key, value, decay, beta, state, *_):
    found = [fused_recurrence(*head) for head in zip(query, key, value, decay, beta, state)]
    return tuple(np.stack(part) for part in zip(*found))


def pieces(query, key, value, decay, beta):
    """What a chunk does to any state: outputs = base + coefficient @ state, and likewise the
    next state. The recurrence is affine in the state, so two runs of it tell."""
    zero, identity = np.zeros((D, D)), np.eye(D)
    base, bias = fused_recurrence(query, key, value, decay, beta, zero)
    coefficient, matrix = fused_recurrence(query, key, 0 * value, decay, beta, identity)
    return base, coefficient, matrix, bias


def without_state(chunks, random):
    query, key, value, decay, beta = tokens(random, chunks * D, unit=False)
    return *floats(query, key, value, *columns(decay, beta)), *MASKS


def pieces_of_a_chunk(query, key, value, decay, beta, *_):
    return pieces(query, key, value, decay, beta)


def pieces_of_each_chunk(query, key, value, decay, beta, *_):
    chunks = [np.split(x, len(x) // D) for x in (query, key, value, decay, beta)]
    return tuple(np.stack(part) for part in zip(*(pieces(*c) for c in zip(*chunks))))


def without_queries(chunks, random):
    _, *given = without_state(chunks, random)
    return tuple(given[:-1])


def summary_of_segments(key, value, decay, beta, *_):
    """Matrix and bias of the state over segments of four chunks."""
    segments = [np.split(x, len(x) // (4 * D)) for x in (key, value, decay, beta)]
    found = [pieces(np.ones_like(k), k, v, d, b)[2:] for k, v, d, b in zip(*segments)]
    return tuple(np.stack(part) for part in zip(*found))


def transforms(count, random):
    return floats(state(random, count) / 8, state(random, count), state(random))


def prefix(matrices, biases, state):
    states = [state.astype(np.float64)]
    for matrix, bias in zip(matrices, biases):
        states.append(matrix @ states[-1] + bias)
    return np.stack(states[:-1]), states[-1]


def three(count, random):
    return floats(*(state(random, count) for _ in range(3)))


def applied(base, coefficients, states):
    return (base.astype(np.float64) + coefficients.astype(np.float64) @ states).reshape(-1, D)


def pieces_and_state(count, random):
    matrices, biases, start = transforms(count, random)
    return *floats(state(random, count), state(random, count)), matrices, biases, start


def prefix_applied(base, coefficients, matrices, biases, state):
    states, last = prefix(matrices, biases, state)
    return applied(base, coefficients, states), last


DELTA_RULE = (
    Case(
        f"{DELTANET}/nki_deltanet.py",
        "_deltanet_recurrent_step_batched_kernel",
        partial(steps, 3),
        each_head_one_token,
        1e-5,
    ),
    Case(
        f"{DELTANET}/nki_deltanet.py",
        "deltanet_recurrent_step",
        partial(recurrent, 1, True),
        recurrence,
        1e-5,
    ),
    Case(
        f"{DELTANET}/nki_deltanet.py",
        "deltanet_recurrent_fwd",
        partial(recurrent, 12, False),
        outputs_of_recurrence,
        1e-5,
    ),
    Case(
        f"{DELTANET}/nki_deltanet.py",
        "deltanet_recurrent_fwd_state",
        partial(recurrent, 12, False),
        recurrence,
        1e-5,
    ),
    Case(
        f"{DELTANET}/nki_deltanet_chunked.py", "deltanet_chunk_step", chunk, chunk_recurrence, 1e-4
    ),
    *(
        Case(
            FUSED,
            "deltanet_fused_chunked_fwd",
            partial(fused, False),
            fused_recurrence,
            1e-4,
            label=label,
            environment={f"QWEN36_DELTANET_{name}": value for name, value in options.items()},
        )
        for label, options in (
            ("doubling", {}),
            ("inverse of blocks", {"SOLVE_MODE": "kkt_hier", "SOLVE_BLOCK_SIZE": "128"}),
            ("prefix", {"SOLVE_ACTIVE_PREFIX_K": "1"}),
            ("chunks of 64", {"CHUNK_SIZE": "64"}),
        )
    ),
    Case(
        FUSED,
        "deltanet_fused_chunked_fwd_multihead",
        heads_of_tokens,
        each_head,
        1e-4,
        cores=2,
    ),
    Case(FUSED, "deltanet_autocp_affine_chunk", partial(without_state, 1), pieces_of_a_chunk, 1e-4),
    *(
        Case(
            FUSED,
            "deltanet_autocp_affine_sequence",
            partial(without_state, 4),
            pieces_of_each_chunk,
            1e-4,
            cores=cores,
            label=f"{cores} cores",
        )
        for cores in (1, 2)
    ),
    *(
        Case(
            FUSED,
            "deltanet_autocp_state_summary_sequence",
            partial(without_queries, 8),
            summary_of_segments,
            1e-4,
            cores=cores,
            label=f"{cores} cores",
        )
        for cores in (1, 2)
    ),
    Case(FUSED, "deltanet_autocp_state_prefix", partial(transforms, 3), prefix, 1e-5),
    Case(FUSED, "deltanet_autocp_apply_output", partial(three, 3), applied, 1e-5),
    Case(
        FUSED,
        "deltanet_autocp_prefix_apply_output",
        partial(pieces_and_state, 3),
        prefix_applied,
        1e-5,
    ),
    Case(
        f"{DELTANET}/nki_deltanet_fused_legacy.py",
        "deltanet_fused_chunked_fwd",
        partial(fused, True),
        legacy_recurrence,
        1e-4,
    ),
)


def projected(random):
    q, k = random.standard_normal((1, 200, 512)), random.standard_normal((1, 200, 256))
    gammas = random.uniform(0.5, 1.5, (2, 256))
    angle = random.uniform(0, 6, (1, 200, 32)).repeat(2, axis=0).reshape(2, 200, 32)[:1]
    angle = np.concatenate([angle, angle], axis=-1)
    return *floats(q, k, *gammas, np.cos(angle), np.sin(angle)), 1e-6


def normalised_and_rotated(q, k, q_gamma, k_gamma, cos, sin, eps):
    outputs = []
    for x, gamma in ((q, q_gamma), (k, k_gamma)):
        heads = x.reshape(*x.shape[:2], -1, 256).transpose(0, 2, 1, 3)
        outputs.append(rotate_partly(rms_norm(heads, gamma, eps), cos[:, None], sin[:, None], 64))
    return tuple(outputs)


CASES = (
    *CACHES,
    *ATTENTION,
    *DELTA_RULE,
    Case(
        f"{DELTANET}/qwen_qk_norm_rope.py",
        "qwen_qk_norm_partial_rope_kernel",
        projected,
        normalised_and_rotated,
        1e-5,
    ),
)

OTHERS = ()
LEFT_OUT: dict[tuple[str, str], str] = {}
