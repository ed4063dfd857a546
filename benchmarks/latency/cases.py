"""Which kernel, sizes and metric each row of published_latencies.csv stands for.

Kernels whose outermost loop repeats the same work are timed at two numbers of its rounds and
continued along the line through both, because a program of all rounds takes minutes to compile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from latency import attention, attention_on_chip, elementwise, fused, matmuls, scans
from latency.reference import (
    adamw,
    attend,
    batched,
    depthwise,
    layer_norm,
    matmul,
    norm_then_product,
    product_then_norm,
    scan,
    silu,
    swapped,
    turned,
)
from latency.tiles import P

BFLOAT16, FLOAT32 = nl.bfloat16, nl.float32
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Case:
    """A kernel: `shapes(rounds)` are its arguments' when its outermost loop has that many rounds.

    `rounds` is how many the published run had, `timed` the two that are compiled. `small` are
    shapes for the comparison with `formula`, which is NumPy. `moved` names the transformations
    (`nki.transformations`) that the compiler of the published run made, where its counters or
    another row of the same kernel say so; `as_written` leaves them out. `own` says that only rows
    of this kernel show them, `fitted` what the documents say for figures that its rows were fitted
    on: `left_out` is the kernel without what its own rows contributed. `figures` are timed with in
    place of the target's.
    """

    kernel: Any
    target: str
    dtype: Any
    shapes: Callable[[int], Shapes]
    rounds: int
    timed: tuple[int, int]
    small: Shapes
    formula: Callable[..., np.ndarray]
    options: dict[str, Any] = field(default_factory=dict)
    moved: tuple[str, ...] = ()
    own: bool = False
    fitted: dict[str, float] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)

    def program(self, rounds: int) -> Any:
        specs = [nki.TensorSpec(shape, self.dtype) for shape in self.shapes(rounds)]
        kernel = self.kernel.with_transformations(*self.moved)
        return nki.compile(kernel, *specs, target=self.target, **self.options).program

    def as_written(self) -> Case:
        """The author's program, of which only the schedule is the compiler's."""
        return replace(self, moved=())

    def left_out(self) -> Case:
        """As it would be predicted, had its rows not been published."""
        return replace(self, figures=self.fitted, moved=() if self.own else self.moved)


def _product(m: int, k: int, n: int) -> Callable[[int], Shapes]:
    """Shapes of [K, M].T @ [K, N] with `m` rows of the result a round."""
    return lambda rounds: ((k, m * rounds), (k, n))


def _turned(m: int, k: int, n: int) -> Callable[[int], Shapes]:
    return lambda rounds: ((m * rounds, k), (k, n))


def _normed(m: int, k: int, n: int, normed: int) -> Shapes:
    """Shapes of x, w, what is added, and the weights of a norm over `normed` columns."""
    return (m, k), (k, n), (m, normed), (1, normed)


def _scan(length: int) -> Callable[[int], Shapes]:
    """Shapes of a scan over 16 states, with 128 channels a round."""
    return lambda rounds: _scan_shapes(P * rounds, length, 16)


def _scan_shapes(channels: int, length: int, states: int) -> Shapes:
    wide, narrow = (channels, length), (states, length)
    return wide, wide, (channels, states), narrow, narrow


KEPT = ("reuse-loads:lhs_t=3", "reuse-loads:lhs=3")
"""Of the eight loads of an lhs tile that AG001's author wrote, its compiler left three; AC001 is
the same kernel, AG014 one with the same loops."""

ON_VECTOR = ("squares-on-vector",)
"""LN002 and VG001 take 9.9 and 6.3 times N cycles of VectorE a tile of N columns, where sums,
subtractions and products make 8 and 5: the engine of `nl.square` is left open by the author."""

IN_PSUM = ("reuse-work:product", "read-in-psum:spread")
"""The compiler of MB006 left VectorE 7 passes of N cycles for a state (0.9963 * 1.61 ms / 512 =
3.13 us), where 5 instructions of 2 N are written: delta * u does not depend on the state, and an
operand in PSUM halves one more."""

SMALL = ((256, 512), (256, 1024))
SMALL_TURNED = ((128, 1024), (1024, 1024))


def _square(kernel: Any, trigger: float = 0.0, **options: Any) -> Case:
    """2048 x 2048 x 2048. `trigger`: what the rows of the other kernels give for it, if any."""
    small = ((256, 512), (256, 1024))
    formula = matmul
    if options.get("lhs_turned") and options.get("rhs_turned"):
        small, formula = ((512, 256), (1024, 256)), swapped
    elif options.get("rhs_turned"):
        small, formula = ((256, 512), (1024, 256)), turned
    both = (2048, 2048), (2048, 2048)
    return Case(
        kernel, "trn2", BFLOAT16, lambda _: both, 1, (1, 1), small, formula, options,
        fitted={"dma_trigger_static_ns": trigger} if trigger else {},
    )  # fmt: skip


def _mamba(
    kernel: Any, channels: int, length: int, timed: Any, moved: tuple[str, ...] = (), **options: Any
) -> Case:
    shapes, small = _scan(length), _scan_shapes(P, min(length, 1024), 2)
    tiles = channels // P
    return Case(kernel, "trn1", FLOAT32, shapes, tiles, timed, small, scan, options, moved)


def _attention(kernel: Any, dtype: Any = None) -> Case:
    """Of 4096 rows and columns, by tiles of 128 rows."""
    return Case(
        kernel, "trn1", BFLOAT16, lambda rounds: ((P, P * rounds), (P, 4096), (P, 4096)), 32,
        (2, 4), ((P, P), (P, 512), (P, 512)), attend, {} if dtype is None else {"dtype": dtype},
    )  # fmt: skip


def _layer_norm(target: str) -> Case:
    return Case(
        elementwise.layer_norm, target, FLOAT32,
        lambda rounds: ((P * rounds, 8192), (1, 8192), (1, 8192)), 32, (2, 4),
        ((P, 1024), (1, 1024), (1, 1024)), layer_norm, moved=ON_VECTOR,
    )  # fmt: skip


def cases() -> dict[str, Case]:
    """Every kernel by its name."""
    inside, columns = matmuls.loads_inside, matmuls.hoisted_columns
    gemm = _product(512, 8192, 8192)
    found = {
        "mamba v1 256": _mamba(scans.states_outside, 256, 512, (2, 2)),
        "mamba v1 4096": _mamba(scans.states_outside, 4096, 512, (4, 8)),
        "mamba v2": _mamba(scans.channels_outside, 4096, 512, (2, 4), IN_PSUM),
        "mamba states outside 2048": _mamba(scans.states_outside, 256, 2048, (2, 2)),
        "mamba parts in PSUM": _mamba(scans.parts_in_psum, 256, 2048, (2, 2)),
        "mamba 7168": _mamba(scans.states_outside, 256, 7168, (2, 2)),
    }
    for length in (1024, 3072, 5120, 6144):
        made = _mamba(scans.channels_outside, 4096, length, (1, 2), IN_PSUM, width=512)
        found[f"mamba v3 {length}"] = made
    wide = _product(P, 8192, 8192)
    found |= {
        "matmul loads inside": Case(
            inside, "trn2", FLOAT32, wide, 32, (1, 2), SMALL, matmul, {}
        ),
        "matmul hoisted columns": Case(
            columns, "trn2", FLOAT32, wide, 32, (1, 2), SMALL, matmul, {}
        ),
        "matmul V0": Case(
            inside, "trn2", BFLOAT16, _product(P, 4096, 4096), 32, (2, 4), SMALL, matmul,
            moved=KEPT, own=True,
        ),
        "matmul V1": Case(
            matmuls.free_blocks, "trn2", BFLOAT16, _product(1024, 4096, 4096), 4, (2, 4),
            ((128, 1024), (128, 1024)), matmul, fitted={"dma_short_run_fraction": 0.45},
        ),
        "matmul transposes": Case(
            matmuls.transposed_tiles,
            "trn2",
            BFLOAT16,
            _turned(P, 2048, 2048),
            16,
            (4, 8),
            ((256, 512), (512, 512)),
            lambda a, b: a @ b,
            moved=KEPT,
        ),
        "lhsT_rhs 31": _square(matmuls.resident, 385.0),
        "lhsT_rhs manual IR": _square(matmuls.summed_blocks),
        "lhsT_rhs manual": _square(matmuls.summed_blocks, packed=True),
        "lhsT_rhsT 53": _square(matmuls.resident, 370.0, rhs_turned=True),
        "lhs_rhsT 83": _square(matmuls.resident, 445.0, lhs_turned=True, rhs_turned=True),
        "gemm 0": Case(
            inside, "trn1", BFLOAT16, wide, 32, (1, 2), SMALL, matmul,
            {"engine": nisa.engine.scalar}, KEPT,
        ),
        "gemm 3": Case(matmuls.eight_sums, "trn1", BFLOAT16, gemm, 8, (1, 2), SMALL, matmul),
        "gemm 5": Case(
            matmuls.eight_sums, "trn1", BFLOAT16, gemm, 8, (1, 2), SMALL, matmul, {"wide": True}
        ),
        "matmul K5120": Case(
            matmuls.rows_turned, "trn1", FLOAT32, _turned(P, 5120, 12288), 32, (1, 2),
            SMALL_TURNED, lambda a, b: a @ b,
        ),
        "bmm": Case(
            matmuls.batched, "trn1", FLOAT32,
            lambda rounds: ((rounds, 4096, 64), (rounds, 64, 4096)), 16, (1, 2),
            ((1, 1024, 64), (1, 64, 1024)), batched,
        ),
        "norm, matmul": Case(
            fused.norm_then_product, "trn1", FLOAT32,
            lambda rounds: _normed(P * rounds, 1024, 2048, 1024), 32, (4, 8),
            _normed(128, 256, 512, 256), norm_then_product,
        ),
        "matmul, norm": Case(
            fused.product_then_norm, "trn1", FLOAT32,
            lambda rounds: _normed(P * rounds, 2048, 2048, 2048), 32, (4, 8),
            _normed(128, 256, 512, 512), product_then_norm,
        ),
        "conv1d": Case(
            elementwise.depthwise, "trn1", FLOAT32,
            lambda rounds: ((P * rounds, 2048), (P * rounds, 3)), 32, (1, 2),
            ((P, 32), (P, 3)), depthwise,
        ),
        "conv1d, taps in PSUM": Case(
            elementwise.depthwise, "trn1", FLOAT32,
            lambda rounds: ((P * rounds, 2048), (P * rounds, 3)), 32, (1, 2),
            ((P, 32), (P, 3)), depthwise, {"taps_in_psum": True},
        ),
        "attention through HBM": replace(_attention(attention.through_hbm), timed=(1, 2)),
        "attention in PSUM": _attention(attention_on_chip.products_in_psum),
        "attention anew": _attention(attention_on_chip.products_anew, FLOAT32),
        "attention anew, bf16": _attention(attention_on_chip.products_anew, BFLOAT16),
        "attention kept in bf16": _attention(attention_on_chip.products_kept),
        "layer norm trn1": _layer_norm("trn1"),
        "layer norm trn2": _layer_norm("trn2"),
        "silu": Case(
            elementwise.silu, "trn1", FLOAT32, lambda rounds: ((P * rounds, 7168),), 32, (4, 8),
            ((P, 1024),), silu, fitted={"reciprocal_cycles": 8.0},
        ),
        "adamw": Case(
            elementwise.adamw, "trn1", FLOAT32, lambda rounds: ((P * rounds, 2048),) * 4, 86,
            (4, 8), ((P, 1024),) * 4, adamw,
        ),
    }  # fmt: skip
    return found


KERNELS = {
    "MB001": "mamba v1 256", "MB002": "mamba v1 256", "MB003": "mamba v1 256",
    "MB004": "mamba v1 4096", "MB005": "mamba v1 4096", "MB006": "mamba v2", "MB007": "mamba v2",
    "MB015": "mamba v3 1024", "MB019": "mamba v3 3072", "MB023": "mamba v3 5120",
    "MB025": "mamba v3 6144",
    "KO001": "matmul loads inside", "KO002": "matmul loads inside",
    "KO003": "matmul loads inside", "KO004": "matmul loads inside",
    "KO005": "matmul loads inside", "KO007": "matmul loads inside",
    "KO008": "matmul hoisted columns", "KO009": "matmul hoisted columns",
    "KO010": "matmul hoisted columns", "KO011": "matmul hoisted columns",
    "KO012": "matmul hoisted columns", "KO014": "matmul hoisted columns",
    "AG001": "matmul V0", "AG002": "matmul V0", "AG003": "matmul V0", "AG004": "matmul V0",
    "AG005": "matmul V1", "AG006": "matmul V1", "AG007": "matmul V1", "AG008": "matmul V1",
    "AG014": "matmul transposes", "AG015": "matmul transposes",
    "NA004": "lhsT_rhs 31", "NA005": "lhsT_rhs manual IR", "NA006": "lhsT_rhs manual",
    "NA007": "lhsT_rhsT 53", "NA009": "lhs_rhsT 83",
    "AC001": "gemm 0", "AC004": "gemm 3", "AC006": "gemm 5",
    "AC007": "mamba states outside 2048", "AC011": "mamba parts in PSUM",
    "AC015": "attention through HBM",
    "AC017": "attention in PSUM", "AC018": "attention anew",
    "AC019": "attention anew, bf16", "AC023": "attention kept in bf16",
    "AC033": "conv1d", "AC038": "conv1d, taps in PSUM",
    "NB004": "matmul, norm", "NB005": "matmul, norm", "NB006": "matmul, norm",
    "NB007": "norm, matmul", "NB008": "norm, matmul", "NB009": "norm, matmul",
    "NB010": "matmul K5120", "NB011": "matmul K5120", "NB012": "matmul K5120",
    "LN002": "layer norm trn1", "VG001": "layer norm trn2",
    "NB022": "bmm", "NB023": "bmm", "NB024": "bmm",
    "NB034": "adamw", "NB035": "adamw", "NB036": "adamw",
    "NB037": "silu", "NB038": "silu", "NB039": "silu",
    "NB040": "mamba 7168", "NB041": "mamba 7168", "NB042": "mamba 7168",
}  # fmt: skip
"""Kernel of each row of published_latencies.csv."""
