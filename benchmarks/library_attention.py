"""Attention as a graph beside the attention kernel of nki-library, in the same timing model.

    python benchmarks/library_attention.py CHECKOUT [--tokens 4096] [--width 128]

CHECKOUT is a checkout of github.com/aws-neuron/nki-library (2.29 is what the project compares
with), from which the kernel `attention_cte` is taken as it is. Both compute softmax(q k') v of one
head in bf16, with the true maximum and without a mask, on one core of trn2; the kernel with its
operands in rows and in columns, of which the faster counts. Outputs are compared.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from graphs import attention

import graph_compiler
import nki

TARGET = "trn2"


def library(checkout: Path, q: Any, k: Any, v: Any) -> tuple[Any, float]:
    """The kernel's result and its us."""
    source = checkout / "src/nkilib_src"
    if not source.exists():
        raise SystemExit(f"{checkout} is no checkout of nki-library: it has no src/nkilib_src")
    sys.path.insert(0, str(source))
    os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = TARGET
    from nkilib.core.attention.attention_cte import attention_cte

    found = []
    for by_rows in (True, False):
        given = [np.ascontiguousarray(array if by_rows else array.T)[None] for array in (q, k)]
        out, metrics = nki.profile(attention_cte, target=TARGET)(
            *given, v[None], scale=1.0, causal_mask=False, tp_q=by_rows, tp_k=by_rows
        )
        found.append((metrics.total_us, np.asarray(out)[0]))
    us, result = min(found, key=lambda one: one[0])
    return result, us


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--width", type=int, default=128)
    options = parser.parse_args()
    case = attention(options.tokens, options.width)
    module = graph_compiler.parse_text(case.text)
    rng = np.random.default_rng(0)
    shape = options.tokens, options.width
    dtype = module.parameters[0].shape.numpy_dtype()
    q, k, v = ((rng.standard_normal(shape, np.float32) / 4).astype(dtype) for _ in range(3))
    (own,), profile = graph_compiler.compile(module, TARGET).profile(q, k, v)
    theirs, us = library(options.checkout, q, k, v)
    apart = np.abs(own.astype(np.float32) - theirs.astype(np.float32)).max()
    print(
        f"{case.name}: graph {profile.total_us:.1f} us, nki-library {us:.1f} us,"
        f" ratio {profile.total_us / us:.2f}; results differ by {apart:.4f} at most"
    )


if __name__ == "__main__":
    main()
