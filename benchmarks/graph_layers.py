"""How long layers of transformers take on the simulated device, beside what no program could beat.

    python benchmarks/graph_layers.py [NAME...] [--target TARGET] [--cores]

Twelve layers of BERT-base (batch 1, 128 tokens, norms behind the sums) in bf16 and in fp32, and
layers of the Llama kind (rotary embedding, a causal mask, a gated product) of 128, 512 and 2048
tokens in bf16, written in jax, whose weights are parameters. The bound is the largest of the
floating-point operations at the peak rate of their type, and the bytes of arguments and results at
the bandwidth of HBM. `--cores` adds what two cores take. Times are those of the timing model.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from published_models import Weights, _gelu, _layer_weights, _times

import graph_compiler
from graph_compiler.options import GraphOptions
from graph_compiler.timing import static_timeline
from isa.target import TARGETS


def _normed(x: Any, pair: Any) -> Any:
    """Rows less their mean, over their deviation, computed in fp32."""
    import jax
    import jax.numpy as jnp

    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = ((wide - mean) ** 2).mean(-1, keepdims=True)
    scaled = (wide - mean) * jax.lax.rsqrt(variance + 1e-12)
    return (scaled * pair[0].astype(jnp.float32) + pair[1].astype(jnp.float32)).astype(x.dtype)


def _attention(x: Any, w: Any, heads: int) -> Any:
    """Softmax in fp32, products in the type of x."""
    import jax
    import jax.numpy as jnp

    batch, tokens, size = x.shape
    depth = size // heads

    def split(name: str) -> Any:
        return _times(x, w[name]).reshape(batch, tokens, heads, depth).transpose(0, 2, 1, 3)

    scores = jnp.einsum("bhqd,bhkd->bhqk", split("q"), split("k")) / np.array(depth**0.5, x.dtype)
    weights = jax.nn.softmax(scores.astype(jnp.float32), -1).astype(x.dtype)
    found = jnp.einsum("bhqk,bhkd->bhqd", weights, split("v"))
    return _times(found.transpose(0, 2, 1, 3).reshape(batch, tokens, size), w["o"])


def bert(type: str) -> tuple[Callable[..., Any], list[Any], float]:
    """The model, its arguments, and its floating-point operations."""
    import jax
    import jax.numpy as jnp

    count, tokens, size = 12, 128, 768
    weights = Weights()
    layers = [_layer_weights(weights, size) for _ in range(count)]
    layers = jax.tree.map(lambda array: jnp.asarray(array, type), layers)

    def model(x: Any, layers: Any) -> Any:
        for w in layers:
            x = _normed(x + _attention(x, w, 12), w["first"])
            hidden = _gelu(_times(x, w["up"]))
            x = _normed(x + _times(hidden, w["down"]), w["second"])
        return x

    flops = count * (2 * tokens * 12 * size**2 + 4 * tokens**2 * size)
    return model, [jnp.zeros((1, tokens, size), type), layers], flops


def llama(tokens: int) -> tuple[Callable[..., Any], list[Any], float]:
    """The same of one layer of 2048, 16 heads, in bf16."""
    import jax
    import jax.numpy as jnp

    size, heads, inner, type = 2048, 16, 5632, jnp.bfloat16
    depth = size // heads
    weights = Weights()
    shapes = dict.fromkeys("qkvo", (size, size))
    shapes |= {"gate": (size, inner), "up": (size, inner), "down": (inner, size)}
    shapes |= {"first": (size,), "second": (size,)}
    tree = {name: jnp.asarray(weights(*shape), type) for name, shape in shapes.items()}
    angles = [weights(tokens, 1, depth // 2) for _ in range(2)]

    def normed(x: Any, factors: Any) -> Any:
        wide = x.astype(jnp.float32)
        mean = (wide * wide).mean(-1, keepdims=True)
        return (wide * jax.lax.rsqrt(mean + 1e-5)).astype(type) * factors

    def rotated(x: Any, angles: Any) -> Any:
        a, b = jnp.split(x.reshape(tokens, heads, depth).astype(jnp.float32), 2, -1)
        cos, sin = angles
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(type)

    def model(x: Any, w: Any, angles: Any) -> Any:
        h = normed(x, w["first"])
        q, k = rotated(h @ w["q"], angles), rotated(h @ w["k"], angles)
        v = (h @ w["v"]).reshape(tokens, heads, depth)
        scores = jnp.einsum("qhd,khd->hqk", q, k).astype(jnp.float32) * np.float32(depth**-0.5)
        scores = jnp.where(jnp.tril(jnp.ones((tokens, tokens), bool)), scores, -1e30)
        found = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores, -1).astype(type), v)
        x = x + found.reshape(tokens, size) @ w["o"]
        h = normed(x, w["second"])
        return x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]

    flops = 2 * tokens * (4 * size**2 + 3 * size * inner) + 4 * tokens**2 * size
    return model, [jnp.zeros((tokens, size), type), tree, angles], flops


MODELS: dict[str, tuple[str, Callable[[], Any]]] = {
    "12 BERT layers bf16": ("bfloat16", lambda: bert("bfloat16")),
    "12 BERT layers fp32": ("float32", lambda: bert("float32")),
    "Llama layer 128": ("bfloat16", lambda: llama(128)),
    "Llama layer 512": ("bfloat16", lambda: llama(512)),
    "Llama layer 2048": ("bfloat16", lambda: llama(2048)),
}
"""What is measured, with the type that it multiplies, by name."""


def measure(name: str, target: str, cores: bool) -> None:
    """Prints a line."""
    import jax

    type, make = MODELS[name]
    model, arguments, flops = make()
    module = graph_compiler.load(jax.jit(model).lower(*arguments))
    device = TARGETS[target]
    shapes = [item.shape for item in module.parameters] + [module.result_shape]
    moved = sum(shape.size * shape.primitive.bits // 8 for shape in shapes)
    peak = device.peak_tflops[type].value
    bound = max(moved / device.dma_bytes_per_ns / 1e3, flops / peak / 1e6)
    found = []
    for count in (1, 2) if cores else (1,):
        start = time.process_time()
        options = GraphOptions(logical_cores=count)
        compiled = graph_compiler.compile(module, target, options)
        seconds = time.process_time() - start
        timeline = static_timeline(compiled.kernel.program, once=True)
        assert timeline is not None
        us = timeline.total_ns / 1e3
        found.append(f"{us:8.1f} us ({us / bound:4.2f} of the bound, compiled in {seconds:4.1f} s)")
    print(f"{name:22} bound {bound:7.1f} us  {'  two cores '.join(found)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="models whose name holds one of these")
    parser.add_argument("--target", default="trn2")
    parser.add_argument("--cores", action="store_true")
    options = parser.parse_args()
    for name in MODELS:
        if not options.names or any(part in name for part in options.names):
            measure(name, options.target, options.cores)


if __name__ == "__main__":
    main()
