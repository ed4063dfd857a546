"""Spellings of earlier versions that still work, and what replaces each.

These tables are all that keeps them alive: a module's `__getattr__` is `superseded_names` of it,
`nki.superseded.absent` makes the modules of `MODULES`, and `nki migrate` finds and
rewrites by them. No old spelling is in `__all__` or in `dir()`. Sources are SDK
nki/migration/index.rst and release-notes/components/nki.rst.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Superseded:
    """One spelling: `old` and `new` are dotted names, `since` the version that replaced it.

    `rewrite` tells whether putting `new` in the place of `old` keeps the meaning; if not, `note`
    says what to do by hand. `meaning` is the dotted name of what the old name still stands for if
    not `new`; of a module, the one whose `__all__` it had, if its names are no rows.
    """

    old: str
    new: str
    since: str
    rewrite: bool = True
    note: str = ""
    meaning: str = ""

    @property
    def keyword(self) -> str:
        """The keyword that takes the place of that of a call; "" where it goes."""
        return self.new.rpartition("(")[2].rstrip("=)")


MODULES: tuple[Superseded, ...] = (
    Superseded("nki.isa.constants", "nki.isa", "0.3"),
    Superseded("nki.dtype", "nki.language", "0.4", meaning="nki.language.dtypes"),
    Superseded("nki.tensor", "nki.language", "0.4"),
    Superseded("nki.meta.tensor", "nki.language", "0.4"),
    Superseded(
        "neuronxcc.nki",
        "nki",
        "0.2",
        False,
        "the first-generation API: instructions return tiles there and take dst= here; see "
        "SDK nki/migration/index.rst",
    ),
)
"""Modules whose names are all in another one, under the same names."""

SUPERSEDED: tuple[Superseded, ...] = (
    *(
        Superseded(f"nki.isa.constants.{name}", f"nki.isa.{name}", "0.3")
        for name in (
            "dge_mode",
            "dma_engine",
            "engine",
            "matmul_perf_mode",
            "nc_version",
            "oob_mode",
            "reduce_cmd",
        )
    ),
    *(
        Superseded(f"nki.isa.{name}_engine", f"nki.isa.engine.{name}", "0.3")
        for name in ("gpsimd", "scalar", "tensor", "unknown", "vector")
    ),
    Superseded(
        "nki.typing.mutable_tensor", "nki.language.NkiTensor", "0.2", meaning="nki.typing.tensor"
    ),
    *(
        Superseded(f"{module}.NkiTensor", "nki.language.NkiTensor", "0.4")
        for module in ("nki.tensor", "nki.meta.tensor")
    ),
    Superseded("nki.cpu_simulate", "nki.simulate", "0.4"),
    Superseded("nki.language.bool", "nki.language.bool_", "0.4"),
    Superseded("nki.language.range", "range", "0.4"),
    *(
        Superseded(
            f"nki.language.{name}_range",
            "range",
            "0.3",
            False,
            "Python's range means the same; only a bound that is a launch symbol needs this name",
        )
        for name in ("affine", "sequential", "static")
    ),
    Superseded(
        "nki.language.dynamic_range",
        "nki.language.fori_loop",
        "0.6",
        False,
        "the body becomes a function that gets the value of the iteration",
    ),
    Superseded("nki.language.tile_size.psum_fmax", "nki.language.tile_size.psum_bank_fmax", "0.4"),
    Superseded(
        "nki.language.tile_size.total_available_sbuf_size",
        "nki.language.tile_size.sbuf_fmax_bytes",
        "0.4",
    ),
    Superseded(
        "nki.isa.tensor_copy_dynamic_src",
        "nki.isa.tensor_copy",
        "0.4",
        False,
        "give the offset as src.ap(..., scalar_offset=...)",
    ),
    Superseded(
        "nki.isa.tensor_copy_dynamic_dst",
        "nki.isa.tensor_copy",
        "0.4",
        False,
        "give the offset as dst.ap(..., scalar_offset=...)",
    ),
)
"""Names that another name replaces."""

REMOVED: dict[str, str] = {
    "baremetal": "decorate with @nki.jit and call the kernel with arrays",
    "simulate_kernel": "write nki.simulate(kernel)(...)",
}
"""What to write instead of the functions of the first generation's `nki` that are gone."""

_LEAVE_OUT = "it had no effect; leave it out"
_DST = "dst has the data type of the result, whatever dtype= says"

CALLS: tuple[Superseded, ...] = (
    Superseded(
        "nki.isa.dma_copy(dst_rmw_op=)",
        "nki.isa.dma_compute(dst, [dst, src], reduce_op=nl.add)",
        "0.3",
        False,
    ),
    Superseded(
        "nki.isa.dma_copy(unique_indices=)", "nki.isa.dma_compute(unique_indices=)", "0.3", False
    ),
    Superseded(
        "nki.isa.dma_compute(dst, srcs, scales, reduce_op)",
        "nki.isa.dma_compute(dst, srcs, reduce_op, scales)",
        "0.3",
        False,
    ),
    Superseded(
        "nki.isa.dma_compute(dst, [src])",
        "nki.isa.dma_compute(dst, [dst, src])",
        "0.3",
        False,
        "a source alone is copied; what dst holds is added where it is a source, too",
    ),
    Superseded(
        "nki.isa.sendrecv(use_gpsimd_dma=)",
        "nki.isa.sendrecv(dma_engine=nisa.dma_engine.gpsimd_dma)",
        "0.3",
        False,
    ),
    Superseded("nki.jit(mode=)", "nki.jit()", "0.3", note="the arguments of a call decide"),
    Superseded(
        "nki.jit(platform_target=)",
        "NEURON_PLATFORM_TARGET_OVERRIDE",
        "0.3",
        False,
        "the environment variable names the target; the vendor's nki.jit refuses the argument, the "
        "one of opennki takes it without a hint",
    ),
    Superseded(
        "nki.isa.nc_matmul(is_moving_zero=)", "nki.isa.nc_matmul(is_moving_onezero=)", "0.2"
    ),
    Superseded(
        "nki.isa.nc_matmul(psumAccumulateFlag=)", "nki.isa.nc_matmul()", "0.2", note=_LEAVE_OUT
    ),
    Superseded(
        "nki.collectives.collective_permute_implicit_current_processing_rank_id(num_channels=)",
        "nki.collectives.collective_permute_implicit_current_processing_rank_id()",
        "0.3",
        note="collective_permute_implicit has channel_ids= for it",
    ),
    Superseded(
        "nki.isa.memset(value=2.0)",
        "nki.isa.memset(value=2)",
        "0.3",
        False,
        "tensors of integers take integers",
    ),
    Superseded("nki.isa.register_move(imm=)", "nki.isa.register_move(src=)", "0.3"),
    Superseded(
        "nki.isa.affine_select(dst, pattern, offset, ...)",
        "nki.isa.affine_select(dst, pattern, channel_multiplier, ..., offset=offset)",
        "0.3",
        False,
    ),
    Superseded(
        "while register:",
        "nki.language.while_loop(register, body)",
        "0.6",
        False,
        "the body becomes a function that returns the register of the next condition",
    ),
    Superseded("nki.isa.tensor_copy(dtype=)", "nki.isa.tensor_copy(dst)", "0.4", False, _DST),
    Superseded(
        "nki.isa.scalar_tensor_tensor(dtype=)",
        "nki.isa.scalar_tensor_tensor(dst)",
        "0.4",
        False,
        _DST,
    ),
)
"""Calls whose arguments are given otherwise now; `nki.superseded.isa_calls` understands those of
operations. Of those that rewrite, a keyword takes another's place, or goes."""

ENUMERATIONS = {
    "dge_mode": "dge_mode",
    "dma_engine": "dma_engine",
    "engine": "engine",
    "oob_mode": "oob_mode",
    "reduce_cmd": "reduce_cmd",
}
"""Parameters of operations that took a number, and the enumeration of `nki.isa` to name instead."""

MEMORIES = ("sbuf", "psum", "hbm", "private_hbm", "shared_hbm")
"""Memories that `buffer=` took as text."""

NUMBERS_SINCE = "0.3"
"""Since when numbers and texts are no members of enumerations."""


MEANT = {
    f"nki.isa.tensor_{name}": f"nisa.{operation}(op=nl.{operator})"
    for operation, operators in {
        "tensor_reduce": {"max": "maximum", "min": "minimum", "sum": "add"},
        "tensor_tensor": {"add": "add", "sub": "subtract", "mul": "multiply", "div": "divide"},
    }.items()
    for name, operator in operators.items()
}
"""What to call for names that never were: an operator is an argument of an operation."""


EARLIER_MODULES = frozenset(
    ".".join(parts[:length])
    for row in MODULES
    if row.rewrite
    for parts in (row.old.split("."),)
    for length in range(2, len(parts) + 1)
) - {"nki.isa"}
"""Names of the modules that the tables alone keep alive, packages of them included."""
