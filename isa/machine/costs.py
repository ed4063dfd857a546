"""The costs of machine rows, with their sources (abbreviations: `isa.target.DOCUMENTS`).

Where documents and measurements disagree, gen2 follows the documents, which describe it, and gen3
the measurements, which are of trn2. gen4 takes over gen3's unless its own document says otherwise.
"""

from __future__ import annotations

from isa.cost_formula import Case, Cost

_DOCUMENTED = "COSTS"
_MEASURED = "MEASURED"
_MODES = "ARCH3 (VectorE performance modes)"
_MODES_4 = "ARCH4 (ScalarE performance mode)"
_AS_VECTOR = "not published: as VectorE"
_STREAM = "Max(MIN_II, N*S)"
_FAST = "generation >= 3 and vector"

_DONE = (Case("0"),)

# Two or four elements a cycle on VectorE, from gen3 on.
_QUADRUPLE = Case("Max(MIN_II, N/4)", f"{_FAST} and bits16 and not psum and contiguous", _MODES)
_DOUBLE = Case("Max(MIN_II, N*S/2)", f"{_FAST} and bits16 and (not psum or contiguous)", _MODES)
_DOUBLE_FP32 = Case(
    "Max(MIN_II, N/2)", f"{_FAST} and in_bytes == 4 and not psum and contiguous", _MEASURED
)
_SCALAR_DOUBLE = Case("Max(MIN_II, N*S/2)", "generation >= 4 and scalar and bits16", _MODES_4)

# Elementwise

TENSOR_COPY = Cost(
    _SCALAR_DOUBLE,
    _QUADRUPLE,
    _DOUBLE,
    _DOUBLE_FP32,
    Case(
        "Max(MIN_II, 0.77*N)",
        f"{_FAST} and in_bytes == 2 and out_bytes == 4 and not psum and contiguous",
        _MEASURED,
    ),
    Case(_STREAM, source=_DOCUMENTED),
    completion=(
        Case("159", "scalar and psum_source and out_bytes == 4", _MEASURED),
        Case("174", "scalar and psum_source", _MEASURED),
        Case("completion"),
    ),
)
TENSOR_SCALAR = Cost(
    _SCALAR_DOUBLE,
    _QUADRUPLE,
    _DOUBLE,
    _DOUBLE_FP32,
    Case(_STREAM, source=_DOCUMENTED),
    completion=(Case("160", "vector", _MEASURED), Case("completion")),
)
TENSOR_TENSOR = Cost(
    Case("Max(MIN_II, 2*N*S)", "gpsimd", _AS_VECTOR, assumed=True),
    Case("Max(MIN_II, N*S/2)", "generation >= 3 and bits16 and not psum_source", _MODES),
    Case(_STREAM, "generation >= 3", _MEASURED),
    Case(_STREAM, "psum", _DOCUMENTED),
    Case(
        _STREAM,
        "bits16 and contiguous and op in ('add', 'subtract', 'multiply')",
        _DOCUMENTED,
    ),
    Case("Max(MIN_II, 2*N*S)", source=_DOCUMENTED),
    completion=(
        Case("completion", "gpsimd"),
        Case("144", "psum_source", _MEASURED),
        Case("160", source=_MEASURED),
    ),
)
SCALAR_TENSOR_TENSOR = Cost(
    Case(_STREAM, "generation >= 3", "not published for gen3: as tensor_tensor", assumed=True),
    Case(
        _STREAM,
        "bits16 and op0 == 'subtract' and op1 == 'multiply' and N % 2 == 0",
        _DOCUMENTED,
    ),
    Case("Max(MIN_II, 2*N*S)", source=_DOCUMENTED),
)
MEMSET = Cost(
    Case(_STREAM, "gpsimd", _AS_VECTOR, assumed=True),
    Case("Max(MIN_II, 0.8*N*S)", "generation >= 3", _MEASURED),
    Case("Max(MIN_II, N*S/2)", "value == 0 and out_bytes == 2", _DOCUMENTED),
    Case(_STREAM, source=_DOCUMENTED),
    completion=(Case("completion", "gpsimd"), Case("58", source=_MEASURED)),
)
COPY_PREDICATED = Cost(
    Case("Max(MIN_II, 1.065*N*S)", "generation >= 3", _MEASURED),
    Case(_STREAM, "psum_source", _DOCUMENTED),
    Case("Max(MIN_II, 2*N*S)", source=_DOCUMENTED),
)

# Vector engine

TENSOR_REDUCE = Cost(
    Case("Max(MIN_II, N*S/2)", "bits16 and op in ('add', 'maximum')", _DOCUMENTED),
    Case(_STREAM, source=_DOCUMENTED + ", " + _MEASURED),
    completion=(
        Case("completion", "gpsimd"),
        Case("143", "in_bytes == 2", _MEASURED),
        Case("completion"),
    ),
)
RECIPROCAL = Cost(
    # The documents say 8*N, which is more than gen2's VectorE does in all for an element of NB038.
    Case("Max(MIN_II, reciprocal_cycles*N)", source=_MEASURED + "; gen2: NB038"),
)
VECTOR_READ_ACCUMULATOR = Cost(Case("MIN_II", source=_DOCUMENTED + " (tensor_scalar_reduce)"))
TENSOR_TENSOR_SCAN = Cost(Case("Max(MIN_II, 2*N*S)", source=_DOCUMENTED))
TENSOR_SCALAR_CUMULATIVE = Cost(
    Case(_STREAM, source="not published: as tensor_scalar_reduce", assumed=True)
)
SEARCH_8 = Cost(Case(_STREAM, source=_DOCUMENTED))
MATCH_REPLACE_8 = Cost(
    Case(_STREAM, source=_DOCUMENTED + " (which says min(MIN_II, N))", assumed=True)
)
BN_STATS = Cost(Case(_STREAM, source=_DOCUMENTED))
BN_AGGREGATE = Cost(Case("Max(MIN_II, 13*N/3*S)", source=_DOCUMENTED))
SELECT_REDUCE = Cost(Case(_STREAM, source="not published: as tensor_scalar_reduce", assumed=True))
RANGE_SELECT = Cost(Case(_STREAM, source=_DOCUMENTED))
EXPONENTIAL = Cost(Case(_STREAM, source="not published: as tensor_scalar_reduce", assumed=True))
QUANTIZE_MX = Cost(Case("Max(MIN_II, N/4)", source="ARCH4 (QuantizeMX: four elements a cycle)"))
STREAM_SHUFFLE = Cost(
    Case(_STREAM, source=_DOCUMENTED), completion=(Case("143", source=_MEASURED),)
)
TRANSPOSE_32 = Cost(
    Case("Max(89, N)", "generation >= 3", _MEASURED + " (93 ns an issue)"),
    Case(_STREAM, source=_DOCUMENTED),
    completion=(Case("140", source=_MEASURED + " (233 ns in all)"),),
)

# Scalar engine

ACTIVATE = Cost(
    Case(_STREAM, source=_DOCUMENTED),
    completion=(
        Case("202 + columns*activation_operand_ns", "op == 'copy'", _MEASURED),
        # The law of silu is of 1 to 128 elements, that of exp of 64 to 512.
        Case("260 + 0.494*Min(N, 128)", "psum_source and op == 'silu'", _MEASURED),
        Case("251 + 0.141*N", "psum_source", _MEASURED),
        Case("285", "columns <= 1 and op in ('square', 'sqrt', 'log', 'rsqrt')", _MEASURED),
        Case("activation_function_ns + Max(columns - 1, 0)*activation_operand_ns"),
    ),
)
ACTIVATE_2 = Cost(
    Case(_STREAM, source="not published: as activation", assumed=True),
    completion=(Case("activation_function_ns + Max(columns - 1, 0)*activation_operand_ns"),),
)
READ_ACCUMULATOR = Cost(
    Case("accumulator_read_issue_ns", "generation >= 3", _MEASURED, unit="ns"),
    Case("MIN_II", source=_DOCUMENTED + " (activation_reduce)"),
    completion=(
        Case("accumulator_read_ns - accumulator_read_issue_ns", "generation >= 3", _MEASURED),
        Case("completion"),
    ),
)

# GpSimd engine

GPSIMD_STREAM = Cost(Case("gpsimd_startup_cycles + N*S", source=_DOCUMENTED))

PARTITION_REDUCE = Cost(
    Case("gpsimd_startup_cycles + N*S", source="not published: as iota", assumed=True)
)
SEQUENCE_BOUNDS = Cost(
    Case("gpsimd_startup_cycles + N*S", source="not published: as iota", assumed=True)
)
NONZERO_WITH_COUNT = Cost(
    Case("gpsimd_startup_cycles + N*S", source="not published: as iota", assumed=True)
)
# N is K, or the columns of src (n / 16) where they are more.
TOP_K = Cost(Case("4*n + N", source="nki.isa.topk"))
GATHER_ELEMENTS = Cost(
    Case("gpsimd_startup_cycles + N*S", source="not published: as iota", assumed=True)
)
LOCAL_GATHER = Cost(
    Case(
        "gpsimd_startup_cycles + count*width*Min(4/out_bytes, width)*4*width/(28 + 4*width)",
        source=_DOCUMENTED,
    )
)

# Random numbers

RANDOM = Cost(
    Case("gpsimd_startup_cycles + N*S", "gpsimd", "not published: as iota", assumed=True),
    Case("Max(MIN_II, N/4)", "generation >= 4", "ARCH4 (XORWOW-based PRNG: 4 a cycle)"),
    Case(_STREAM, source="not published: as dropout", assumed=True),
)
DROPOUT = Cost(Case("Max(MIN_II, N)", source=_DOCUMENTED))
RANDOM_STATE = Cost(
    Case("gpsimd_startup_cycles + N*S", "gpsimd", "not published: as iota", assumed=True),
    Case("MIN_II", source="not published: a few words a lane", assumed=True),
)

# Tensor engine. Loading fp32 is not among the fast loads: 168 ns between measured transposes of
# 128 columns, of which the array streams for 107 ns while the next tile loads. The measured
# completion of an fp32 matmul, 381 ns, contains that load: the array itself drains in 203 ns, as
# for bfloat16.

LOAD_STATIONARY = Cost(
    Case("Max(MIN_II, 3.15*N)", "in_bytes == 4", _MEASURED + " (nc_transpose fp32 issue)"),
    Case("Max(MIN_II/2, N/load_stationary_columns_per_cycle)", source="ARCH2 (fast weight load)"),
    completion=_DONE,
)
# Between products of the largest tiles some cycles pass; fp32 are two instructions.
_SWITCH = _DOCUMENTED + "; gen3: AG018, VG020"
MULTIPLY_MOVING = Cost(
    Case(
        "fp32_matmul_passes*Max(MIN_II, N) + 2*matmul_switch_cycles",
        "moving_dtype == 'float32'",
        _SWITCH,
    ),
    Case("Max(MIN_II, N*S + matmul_switch_cycles)", source=_SWITCH),
)
_ONE_ZERO = "nki.isa.nc_matmul (is_stationary_onezero: up to 2x for fp32)"
MULTIPLY_MOVING_ONE_ZERO = Cost(
    Case("fp32_matmul_passes/2*Max(MIN_II, N)", "moving_dtype == 'float32'", _ONE_ZERO),
    Case(_STREAM, source=_DOCUMENTED),
)
# N counts both elements of a pair; a pair streams in the time of one bfloat16 element.
_PAIRS = "ARCH3 (double fp8: as bf16 of half the contraction)"
LOAD_STATIONARY_PAIRS = Cost(
    Case("Max(MIN_II/2, N/2/load_stationary_columns_per_cycle)", source=_PAIRS), completion=_DONE
)
MULTIPLY_MOVING_PAIRS = Cost(Case("Max(MIN_II, N/2*S)", source=_PAIRS))
TRANSPOSE_MOVING = Cost(
    Case("2*Max(MIN_II, N)", "moving_dtype == 'float32'", "ARCH3 (2x for fp32)"),
    Case(_STREAM, source=_DOCUMENTED),
)
# N counts packed elements: four values stream in the time of one bfloat16 element.
_QUAD = "ARCH4 (MX: as bf16 of a quarter of the contraction)"
LOAD_STATIONARY_MX = Cost(
    Case("Max(MIN_II/2, N/load_stationary_columns_per_cycle)", source=_QUAD), completion=_DONE
)
MULTIPLY_MOVING_MX = Cost(Case(_STREAM, source=_QUAD))
TRANSPOSE_STATIONARY = Cost(
    Case("Max(N, Min(MIN_II, P))", "loaded != 0", _DOCUMENTED),
    Case("2*Max(N, Min(MIN_II, P))", "out_bytes == 4 and generation >= 3", "ARCH3 (2x for fp32)"),
    Case("fp32_matmul_passes*Max(N, Min(MIN_II, P))", "out_bytes == 4", _DOCUMENTED),
    Case("Max(N, Min(MIN_II, P))", source=_DOCUMENTED),
    completion=(
        Case("270", "out_bytes == 4", _MEASURED + " (377 ns in all)"),
        Case("completion", source=_MEASURED),
    ),
)

# DMA: the time that the engine which starts a transfer is held; the transfer is the timing model's.

DMA_TRIGGER = Cost(
    Case("dma_trigger_hwdge_ns", "dge_mode == 'hwdge'", "DGE", unit="ns"),
    Case("dma_trigger_swdge_ns", "dge_mode == 'swdge'", "DGE", unit="ns"),
    Case("dma_trigger_static_ns", source="DGE", assumed=True, unit="ns"),
    completion=_DONE,
)

# Sequencers

NOTHING = Cost(Case("0", source="takes no time", unit="ns"), completion=_DONE)
SEQUENCER = Cost(
    Case("sequencer_move_ns", source=_MEASURED + " (move)", assumed=True, unit="ns"),
    completion=_DONE,
)
REGISTER_MOVE = Cost(
    Case("sequencer_move_ns", source=_MEASURED, unit="ns"),
    completion=_DONE,
)
REGISTER_LOAD = Cost(
    Case("MIN_II_DYNAMIC", "src_on_chip", "not published: as a dynamic copy", assumed=True),
    Case(
        "dma_load_dispatch_ns + dma_load_tail_ns + dma_load_notify_ns",
        source="not published: as a DMA load",
        assumed=True,
        unit="ns",
    ),
    completion=_DONE,
)
SEND_RECEIVE = Cost(
    Case(
        "core_barrier_ns + N*P*out_bytes/(dma_engines*dma_bytes_per_ns_per_engine)",
        source="third-party (LNC2), and the bytes at the rate of the DMA engines",
        assumed=True,
        unit="ns",
    ),
    completion=_DONE,
)
RANK_EXCHANGE = Cost(
    Case(
        "collective_ns + H*out_bytes/(dma_engines*dma_bytes_per_ns_per_engine)",
        source="COLLECTIVES (both steps of a mesh), and the bytes at the rate of the DMA engines",
        assumed=True,
        unit="ns",
    ),
    completion=_DONE,
)
CORE_BARRIER = Cost(
    Case("core_barrier_ns", source="third-party (LNC2)", assumed=True, unit="ns"),
    completion=_DONE,
)
