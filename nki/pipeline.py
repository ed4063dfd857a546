"""The passes from a traced kernel to a program, in order, each of which can be looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from isa.errors import NeuronError
from isa.gc_pause import collection_paused
from isa.program import Program
from nki import progress
from nki.ir.nodes import TracedKernel
from nki.passes.lower import LOWERING, KernelSteps, lower
from nki.passes.order.peel import PeelAccumulation
from nki.passes.order.pipeline import Pipeline
from nki.passes.order.queues import SpreadLoads
from nki.passes.order.rotate import RotateBuffers
from nki.passes.place.ahead import LoadAhead
from nki.passes.place.allocate import Allocate
from nki.passes.place.roots import ResolveRoots
from nki.passes.relocate import bases_of, first_core, on_all_cores, with_images


class Pass(Protocol):
    """A rewrite of the tile IR."""

    @property
    def name(self) -> str: ...

    def run(self, kernel: TracedKernel) -> TracedKernel: ...


PASSES: tuple[Pass, ...] = (
    ResolveRoots(),
    PeelAccumulation(),
    RotateBuffers(),
    SpreadLoads(),
    Pipeline(),
    LoadAhead(),
    Allocate(),
)
STAGES = ("trace", *(p.name for p in (*PASSES, *LOWERING)))
"""What `nki ir --after` takes: the traced IR, each pass, and the instructions of each stage behind
them, the last of which is the finished program."""


def optimise(
    kernel: TracedKernel, observe: Callable[[str, Any], None] = lambda *_: None
) -> TracedKernel:
    """Run all passes; `observe(stage, kernel)` sees every intermediate form."""
    observe("trace", kernel)
    return _passed(kernel, PASSES, observe)


def _passed(
    kernel: TracedKernel, passes: tuple[Pass, ...], observe: Callable[[str, Any], None]
) -> TracedKernel:
    for item in passes:
        kernel = item.run(kernel)
        observe(item.name, kernel)
    return kernel


def compile_kernel(
    kernel: TracedKernel, observe: Callable[[str, Any], None] | None = None
) -> Program:
    """A traced kernel as a program. Where nobody observes the stages, cores that run one source are
    compiled once (`nki.passes.relocate`)."""

    def observed(stage: str, product: Any) -> None:
        if observe is not None:
            observe(stage, product)
        number = STAGES.index(stage) + 1
        if number < len(STAGES):
            progress.stage(f"{STAGES[number]} ({number} of {len(STAGES) - 1})")

    with collection_paused():
        if observe is not None or len(kernel.bodies) == 1:
            return lower(optimise(kernel, observed), observed)
        observed("trace", kernel)
        kernel = _passed(kernel, PASSES[:1], observed)
        bases = bases_of(kernel)
        if bases is None:
            return lower(_passed(kernel, PASSES[1:], observed), observed)
        kernel = with_images(_passed(first_core(kernel), PASSES[1:], observed), bases)
        return on_all_cores(lower(kernel, observed), kernel, bases)


def stage_text(kernel: TracedKernel, stage: str) -> str:
    """The kernel after one stage as text: tile IR, a list of instructions (`nki.passes.listing`)
    core by core, or assembly for the program.

    Raises unknown-stage for a stage that is none of `STAGES`.

    >>> import nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def cleared(a):
    ...     nisa.memset(dst=nl.ndarray((4, 2), dtype=nl.float32, buffer=nl.sbuf), value=0.0)
    >>> traced = cleared.trace(nki.TensorSpec((4, 2), nl.float32), target="trn2")
    >>> lines = stage_text(traced, "trace").splitlines()
    >>> [line.strip() for line in lines if line.startswith("  memset")]
    ['memset dst=%t1[4, 2 : 2, 1 @ 0] value=0.0 engine=vector loc=1']
    """
    if stage not in STAGES:
        raise NeuronError(
            "unknown-stage", f"there is no stage {stage!r}; stages are {', '.join(STAGES)}"
        )
    found: dict[str, str] = {}

    def observe(name: str, form: Any) -> None:
        if name != stage:
            return
        if isinstance(form, Program):
            from isa.files.text import disassemble

            found[name] = disassemble(form)
        elif isinstance(form, KernelSteps):
            found[name] = str(form)
        else:
            from nki.ir.text import print_kernel

            found[name] = print_kernel(form)

    compile_kernel(kernel, observe)
    return found[stage]
