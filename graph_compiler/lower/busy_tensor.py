"""Products that nobody reads keep the tensor engine at its full rate while it has to wait.

From gen3 on the engine falls back to half of its rate where it was idle for most of a window of
some microseconds, such as while a norm is computed between two products, and takes as long to get
back (SDK tools/neuron-explorer/glossary.rst, dI/dt throttling; overview-summary-page.rst, Keep the
Tensor Engine busy). So what other engines make meanwhile is multiplied by itself.
"""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass
from itertools import pairwise

from graph_compiler.lower.estimated_times import EstimatedLevel, EstimatedStretch
from isa.dtypes import DTYPES
from isa.enums import Engine, Memory
from isa.operations.tensor import NcMatmul
from isa.target import TARGETS
from nki.ir.nodes import Access, Op, Tensor, TracedKernel
from nki.passes.analysis.steps import ENGINE_INDEX

LONGEST = 20_000.0
"""Ns of a wait that is filled, at most."""

FILLED = 0.75
"""The part of a wait that products fill: halfway between what keeps the engine at its rate and all
of it, as waits turn out shorter than estimated."""

EARLY = 0.4
"""The part of a wait in which what is multiplied is made, at most: what comes later than estimated
holds up the engine."""

MARGIN = 1000.0
"""Ns before the end of a wait from which on none begins."""

COLUMNS = 256
"""Columns of such a product, at most. What it delays, it delays by little."""


@dataclass(frozen=True)
class KeepTensorBusy:
    """Puts products that nobody reads between others, in each list of nodes, where the tensor
    engine would wait so long that it falls back.

        nc_matmul dst=%p0 ...                        nc_matmul dst=%p0 ...
        tensor_copy dst=%t0 src=%p0           ->     tensor_copy dst=%t0 src=%p0
        ...                                          nc_matmul dst=%p9 stationary=%t0 moving=%t0
        nc_matmul dst=%p1 stationary=%t8 ...         ...
                                                     nc_matmul dst=%p1 stationary=%t8 ...

    When operations run is estimated by the cost model, in their order, as if loads came early. Of
    a body of a loop it is so in trips behind the first. Results of the kernel are the same.
    """

    name: str = "busy"

    def run(self, kernel: TracedKernel) -> TracedKernel:
        target = TARGETS[kernel.target]
        if not target.throttle_window_ns.value:
            return kernel
        return _Level.changed(kernel, target)


class _Level(EstimatedLevel):
    """One list of nodes."""

    def concerns(self, op: Op) -> bool:
        """Whether the tensor engine takes part in an operation."""
        return any(engine == _TENSOR for engine, *_ in self.costs.of_operation(op))

    def additions(self, stretch: EstimatedStretch) -> dict[Op, list[Op]]:
        """Products behind what is made while the tensor engine waits."""
        multiplied = [at for at, op in enumerate(stretch.ops) if self.concerns(op)]
        added: dict[Op, list[Op]] = {}
        for before, behind in pairwise(multiplied):
            self._fill(stretch, before, stretch.spans[behind].start, added)
        if stretch.later:
            self._fill(stretch, multiplied[-1], stretch.later[multiplied[0]].start, added)
        return added

    @property
    def least(self) -> float:
        """Ns of a wait in which the engine falls back."""
        return self.target.throttle_window_ns.value * self.target.throttle_threshold.value

    def _fill(
        self,
        stretch: EstimatedStretch,
        last: int,
        until: float,
        added: dict[Op, list[Op]],
    ) -> None:
        """Have products behind operations, from one of the tensor engine on and before the next one
        begins, if the engine waits for that."""
        ops, spans = stretch.ops, stretch.spans
        free = spans[last].done
        if not self.least < until - free < LONGEST:
            return
        made = sorted(
            (spans[at].done, at)
            for at in range(len(ops))
            if spans[at].done < free + EARLY * (until - free) and _operand(ops[at]) is not None
        )
        made = made[max(0, bisect(made, (free, 0)) - 1) :]
        bank: Tensor | None = None
        for (start, at), (end, _) in pairwise([*made, (until - MARGIN, 0)]):
            operand = _operand(ops[at])
            assert operand is not None
            bank = bank or self._bank(operand.storage)
            product = _product(bank, operand)
            interval = sum(ns for _, ns, *_ in self.costs.of_operation(product))
            count = int((end - max(start, free)) * FILLED / interval)
            if count > 0:
                others = [_product(bank, operand) for _ in range(count - 1)]
                added.setdefault(ops[at], []).extend((product, *others))

    def _bank(self, storage: Tensor) -> Tensor:
        """A new tensor in PSUM, where products come to lie of what another one has."""
        shape = _MOST, COLUMNS
        like = Tensor(0, "unread", Memory.psum, "float32", shape, core=storage.core)
        like.location = storage.location
        return self.numbering.tensor(like, "")


def _operand(op: Op) -> Access | None:
    """What an operation of another engine makes in SBUF, as an operand; None of others."""
    if len(op.written) != 1:
        return None
    (view,) = op.written
    plain = view.storage.memory is Memory.sbuf and view.vector_offset is None
    if not plain or view.dtype not in _FLOATS or len(view.shape) != 2 or view.strides[1] != 1:
        return None
    rows, columns = view.shape
    if not isinstance(columns, int) or columns < _LEAST_COLUMNS or rows < _LEAST_ROWS:
        return None
    parts = DTYPES[view.dtype].size // DTYPES[_HALF].size
    dtype, strides = (
        (_HALF, (view.strides[0] * parts, 1)) if parts > 1 else (view.dtype, view.strides)
    )
    return Access(
        view.storage, dtype, (rows, min(columns * parts, COLUMNS)), strides, view.offset * parts
    )


def _product(bank: Tensor, moving: Access) -> Op:
    """An operand times itself, or some of its columns."""
    rows, columns = moving.shape
    some = min(columns, _MOST)
    stationary = Access(moving.storage, moving.dtype, (rows, some), moving.strides, moving.offset)
    dst = Access(bank, "float32", (some, columns), (COLUMNS, 1), 0)
    return Op.of(NcMatmul, dst=dst, stationary=stationary, moving=moving, accumulate=False)


_TENSOR = ENGINE_INDEX[Engine.tensor]

_LEAST_ROWS, _LEAST_COLUMNS = 32, 64
"""Of an operand that is worth a product, at least."""

_MOST = 128
"""Columns of a stationary operand, at most."""

_HALF = "bfloat16"
"""As what words of four bytes are multiplied, each as two numbers: in one pass."""

_FLOATS = frozenset({"float32", "bfloat16", "float16"})
