"""Modelled latency and throughput of published models, beside what the vendor publishes for them.

    python benchmarks/published_models.py [NAME...] [--rows trn1|inf2|all] [--list FILE.csv]

The models are written in jax as they are published, with random weights, which are frozen. They are
compiled as `neuronx-cc --auto-cast matmult --auto-cast-type bf16` does, for one core of trn1; inf2
has the same cores. Both cores of a device run a copy each: the throughput is twice the batch over
the latency, the latency that of one. A row is met where both are at least as good as published.

Not modelled: the host, PCIe, the runtime's queues, which the published figures have in them. The
published rows are read from `../shared/facts/published_models.csv`, or from the file of `--list`.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import graph_compiler
from graph_compiler.options import GraphOptions
from graph_compiler.timing import static_timeline
from isa.errors import NeuronError

PUBLISHED = Path(__file__).parents[2] / "shared/facts/published_models.csv"
CORES = 2
"""Cores of a device, each with a copy of the model."""


class Weights:
    """Random weights, as a model asks for them."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self.found: list[Any] = []

    def __call__(self, *shape: int) -> Any:
        array = (self._random.standard_normal(shape, np.float32) * 0.02).astype(np.float32)
        self.found.append(array)
        return array


def _linear(weights: Weights, rows: int, columns: int) -> Any:
    return weights(rows, columns), weights(columns)


def _norm_weights(weights: Weights, size: int) -> Any:
    return weights(size) + np.float32(1), weights(size)


def _layer_weights(weights: Weights, size: int) -> dict[str, Any]:
    return {
        "q": _linear(weights, size, size),
        "k": _linear(weights, size, size),
        "v": _linear(weights, size, size),
        "o": _linear(weights, size, size),
        "up": _linear(weights, size, 4 * size),
        "down": _linear(weights, 4 * size, size),
        "first": _norm_weights(weights, size),
        "second": _norm_weights(weights, size),
    }


def _times(x: Any, pair: Any) -> Any:
    return x @ pair[0] + pair[1]


def _normed(x: Any, pair: Any, epsilon: float) -> Any:
    import jax

    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + epsilon) * pair[0] + pair[1]


def _attention(x: Any, w: dict[str, Any], heads: int, mask: Any = 0.0) -> Any:
    import jax
    import jax.numpy as jnp

    batch, tokens, size = x.shape
    depth = size // heads

    def split(name: str) -> Any:
        return _times(x, w[name]).reshape(batch, tokens, heads, depth).transpose(0, 2, 1, 3)

    scores = jnp.einsum("bhqd,bhkd->bhqk", split("q"), split("k")) / np.float32(depth**0.5)
    weights = jax.nn.softmax(scores + mask, -1)
    found = jnp.einsum("bhqk,bhkd->bhqd", weights, split("v"))
    return _times(found.transpose(0, 2, 1, 3).reshape(batch, tokens, size), w["o"])


def _quick_gelu(x: Any) -> Any:
    import jax

    return x * jax.nn.sigmoid(1.702 * x)


def _gelu(x: Any) -> Any:
    import jax

    return jax.nn.gelu(x, approximate=False)


def _encoder(x: Any, layers: list[Any], heads: int, active: Any, mask: Any = 0.0) -> Any:
    """Layers with their norms before attention and before the products that follow."""
    for w in layers:
        x = x + _attention(_normed(x, w["first"], 1e-5), w, heads, mask)
        x = x + _times(active(_times(_normed(x, w["second"], 1e-5), w["up"])), w["down"])
    return x


def bert(batch: int) -> tuple[Callable[..., Any], Any, list[Any]]:
    """BERT-base: 12 layers of 768, 12 heads, 128 tokens; norms behind the sums."""
    import jax.numpy as jnp

    w, size, tokens = Weights(), 768, 128
    tree = {
        "words": w(30522, size),
        "places": w(tokens, size),
        "norm": _norm_weights(w, size),
        "layers": [_layer_weights(w, size) for _ in range(12)],
        "pooler": _linear(w, size, size),
        "classes": _linear(w, size, 2),
    }

    def model(tree: Any, words: Any, mask: Any) -> Any:
        x = _normed(tree["words"][words] + tree["places"], tree["norm"], 1e-12)
        penalty = (1.0 - mask[:, None, None, :]) * np.float32(-1e4)
        for w in tree["layers"]:
            x = _normed(x + _attention(x, w, 12, penalty), w["first"], 1e-12)
            x = _normed(x + _times(_gelu(_times(x, w["up"])), w["down"]), w["second"], 1e-12)
        return _times(jnp.tanh(_times(x[:, 0], tree["pooler"])), tree["classes"])

    words = np.zeros((batch, tokens), np.int32)
    return model, tree, [words, np.ones((batch, tokens), np.float32)]


def _patches(images: Any, weight: Any, bias: Any) -> Any:
    """[batch, patches, size] of images [batch, height, width, 3]."""
    import jax

    found = jax.lax.conv_general_dilated(
        images, weight, weight.shape[:2], "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return found.reshape(images.shape[0], -1, weight.shape[-1]) + bias


def vit(batch: int) -> tuple[Callable[..., Any], Any, list[Any]]:
    """ViT-base, patches of 16: 12 layers of 768, 197 tokens, 1000 classes."""
    import jax.numpy as jnp

    w, size = Weights(), 768
    tree = {
        "patch": (w(16, 16, 3, size), w(size)),
        "class": w(1, 1, size),
        "places": w(1, 197, size),
        "layers": [_layer_weights(w, size) for _ in range(12)],
        "norm": _norm_weights(w, size),
        "classes": _linear(w, size, 1000),
    }

    def model(tree: Any, images: Any) -> Any:
        x = _patches(images, *tree["patch"])
        first = jnp.broadcast_to(tree["class"], (batch, 1, size))
        x = jnp.concatenate([first, x], 1) + tree["places"]
        x = _encoder(x, tree["layers"], 12, _gelu)
        return _times(_normed(x[:, 0], tree["norm"], 1e-12), tree["classes"])

    return model, tree, [np.zeros((batch, 224, 224, 3), np.float32)]


def clip(batch: int) -> tuple[Callable[..., Any], Any, list[Any]]:
    """CLIP ViT-B/32: an image encoder of 12 layers of 768 with 50 tokens, a text encoder of 12
    layers of 512 with 77, both projected to 512. As many texts as images."""
    import jax.numpy as jnp

    w = Weights()
    tree = {
        "patch": w(32, 32, 3, 768),
        "class": w(1, 1, 768),
        "places": w(1, 50, 768),
        "before": _norm_weights(w, 768),
        "images": [_layer_weights(w, 768) for _ in range(12)],
        "behind": _norm_weights(w, 768),
        "project_images": w(768, 512),
        "words": w(49408, 512),
        "text_places": w(77, 512),
        "texts": [_layer_weights(w, 512) for _ in range(12)],
        "last": _norm_weights(w, 512),
        "project_texts": w(512, 512),
    }

    def model(tree: Any, images: Any, words: Any) -> Any:
        x = _patches(images, tree["patch"], np.zeros(768, np.float32))
        first = jnp.broadcast_to(tree["class"], (batch, 1, 768))
        x = jnp.concatenate([first, x], 1) + tree["places"]
        x = _encoder(_normed(x, tree["before"], 1e-5), tree["images"], 12, _quick_gelu)
        image = _normed(x[:, 0], tree["behind"], 1e-5) @ tree["project_images"]
        causal = np.triu(np.full((77, 77), -1e4, np.float32), 1)
        y = tree["words"][words] + tree["text_places"]
        y = _encoder(y, tree["texts"], 8, _quick_gelu, causal)
        text = _normed(y[:, -1], tree["last"], 1e-5) @ tree["project_texts"]
        image = image / jnp.sqrt((image**2).sum(-1, keepdims=True))
        text = text / jnp.sqrt((text**2).sum(-1, keepdims=True))
        return image @ text.T * np.float32(100)

    return (
        model,
        tree,
        [np.zeros((batch, 224, 224, 3), np.float32), np.zeros((batch, 77), np.int32)],
    )


def resnet(batch: int) -> tuple[Callable[..., Any], Any, list[Any]]:
    """ResNet-50 with the norms of its batches as a factor and a sum for each channel."""
    import jax
    import jax.numpy as jnp

    w = Weights()

    def convolution(size: int, before: int, channels: int) -> Any:
        return w(size, size, before, channels), w(channels) + np.float32(1), w(channels)

    blocks, before = [], 64
    for stage, (count, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for number in range(count):
            block = {
                "stride": 2 if stage and not number else 1,
                "narrow": convolution(1, before, width),
                "middle": convolution(3, width, width),
                "wide": convolution(1, width, 4 * width),
            }
            if not number:
                block["aside"] = convolution(1, before, 4 * width)
            blocks.append(block)
            before = 4 * width
    strides = [block.pop("stride") for block in blocks]
    tree = {"stem": convolution(7, 3, 64), "blocks": blocks, "classes": _linear(w, 2048, 1000)}

    def through(x: Any, own: Any, stride: int = 1) -> Any:
        weight, factor, shift = own
        form = ("NHWC", "HWIO", "NHWC")
        side = weight.shape[0] // 2
        found = jax.lax.conv_general_dilated(
            x, weight, (stride, stride), [(side, side)] * 2, dimension_numbers=form
        )
        return found * factor + shift

    def model(tree: Any, images: Any) -> Any:
        x = jnp.maximum(through(images, tree["stem"], 2), 0)
        window = (1, 3, 3, 1), (1, 2, 2, 1), [(0, 0), (1, 1), (1, 1), (0, 0)]
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, *window)
        for block, stride in zip(tree["blocks"], strides):
            y = jnp.maximum(through(x, block["narrow"]), 0)
            y = jnp.maximum(through(y, block["middle"], stride), 0)
            aside = through(x, block["aside"], stride) if "aside" in block else x
            x = jnp.maximum(through(y, block["wide"]) + aside, 0)
        return _times(x.mean((1, 2)), tree["classes"])

    return model, tree, [np.zeros((batch, 224, 224, 3), np.float32)]


MODELS = {
    "bert-base-uncased": bert,
    "google/vit-base-patch16-224": vit,
    "resnet50": resnet,
    "openai/clip-vit-base-patch32": clip,
}


def frozen(name: str, batch: int) -> Any:
    """A model's graph, its weights constants."""
    import jax

    model, tree, inputs = MODELS[name](batch)
    weights = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    module = graph_compiler.load(jax.jit(model, keep_unused=True).lower(tree, *inputs))
    return graph_compiler.freeze(module, weights)


def measured(name: str, batch: int) -> tuple[float, float, int]:
    """Modelled ms of a model on one core, seconds of compiling it, and its instructions."""
    module = frozen(name, batch)
    start = time.perf_counter()
    program = graph_compiler.compile(
        module, "trn1", GraphOptions(auto_cast="matmult")
    ).kernel.program
    seconds = time.perf_counter() - start
    timeline = static_timeline(program)
    assert timeline is not None
    return timeline.total_ns / 1e6, seconds, program.instruction_count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="parts of models' names; all without any")
    parser.add_argument("--rows", choices=("trn1", "inf2", "all"), default="all")
    parser.add_argument("--list", type=Path, default=PUBLISHED)
    options = parser.parse_args()
    if not options.list.exists():
        print(f"no published figures in {options.list}: name a file with --list")
        return
    with options.list.open() as file:
        rows = list(csv.DictReader(file))
    print(f"{'model':<30}{'on':>5}{'batch':>6}{'p50 ms':>9}{'modelled':>9}{'ratio':>7}", end="")
    print(f"{'per s':>9}{'modelled':>9}{'ratio':>7}{'compiled':>10}{'instructions':>13}")
    known: dict[Any, tuple[float, float, int]] = {}
    for row in rows:
        name, batch = row["model"], int(row["batch"])
        wanted = options.rows in ("all", row["device"])
        if not wanted or not all(part in name for part in options.names):
            continue
        if name not in MODELS:
            print(f"{name:<30}{row['device']:>5}{batch:>6}  not written here")
            continue
        try:
            if (name, batch) not in known:
                known[name, batch] = measured(name, batch)
        except NeuronError as error:
            print(f"{name:<30}{row['device']:>5}{batch:>6}  {error.code}: {error.what}")
            continue
        own, seconds, count = known[name, batch]
        published, rate = float(row["p50_ms"]), float(row["throughput_per_s"])
        throughput = CORES * batch / own * 1e3
        print(f"{name:<30}{row['device']:>5}{batch:>6}{published:>9.3f}{own:>9.3f}", end="")
        print(f"{own / published:>7.2f}{rate:>9.0f}{throughput:>9.0f}", end="")
        print(f"{throughput / rate:>7.2f}{seconds:>8.1f} s{count:>13,}", flush=True)


if __name__ == "__main__":
    main()
