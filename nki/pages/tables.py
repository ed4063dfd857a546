"""Pages of the tables: dtypes, targets, ALU operators, activation functions, memories, costs,
metrics of profiles."""

from __future__ import annotations

import math
from collections.abc import Iterable

from isa.alu import ACTIVATIONS, ALU, AluOperator, ScalarEngineFunction
from isa.cost_formula import QUANTITIES
from isa.dtypes import DTYPES, DType
from isa.memory import MEMORIES, PORT_CONFLICTS, start_partitions
from isa.target import DOCUMENTS, TARGETS, Figure
from isa.wording import engines, generations
from nki.row_pages.markdown import cited, code, page, source, table
from simulator.profile.official import METRICS


def table_pages() -> dict[str, str]:
    """Pages by path."""
    return {
        "reference/dtypes.md": _dtypes(),
        "reference/targets.md": _targets(),
        "reference/alu.md": _operators(),
        "reference/activations.md": _activations(),
        "reference/memories.md": _memories(),
        "reference/costs.md": _costs(),
        "reference/metrics.md": _metrics(),
    }


def _number(value: float) -> str:
    if math.isinf(value):
        return "-inf" if value < 0 else "inf"
    if isinstance(value, int) or (value == int(value) and abs(value) < 10**7):
        return f"{int(value):,}"
    exponent = math.log2(abs(value))
    if exponent == int(exponent):
        return ("-" if value < 0 else "") + f"2^{int(exponent)}"
    return f"{value:.7g}"


def _dtypes() -> str:
    return page(
        "# Data types",
        "Conversion into integers rounds to nearest even and saturates; NaN gives 0. Conversion "
        "into floats rounds to nearest even; what is beyond the largest finite value becomes what "
        "the column *overflow* says. `dma only`: no engine computes with the type.",
        table(
            (
                "name",
                "bytes",
                "kind",
                "lowest",
                "largest",
                "overflow",
                "generations",
                "notes",
                "source",
            ),
            (
                (
                    code(row.name),
                    row.size,
                    row.kind.value,
                    _number(row.lowest) if not row.is_packed else "",
                    _number(row.largest) if not row.is_packed else "",
                    row.overflow.value if row.is_float else "",
                    generations(row.generations),
                    _dtype_notes(row),
                    cited(row.source),
                )
                for row in DTYPES.values()
            ),
        ),
    )


def _dtype_notes(row: DType) -> str:
    notes = []
    if row.is_float:
        notes.append(f"{row.exponent_bits} exponent and {row.mantissa_bits} mantissa bits")
    if row.is_packed:
        notes.append(f"{row.packed_values} x {row.packed_type}")
    if row.dma_only:
        notes.append("dma only")
    return ", ".join(notes)


def _targets() -> str:
    names = list(TARGETS)
    figures = {name: target.figures() for name, target in TARGETS.items()}
    keys = dict.fromkeys(key for found in figures.values() for key in found)
    heads = [
        (
            code(target.name),
            ", ".join(target.names),
            f"gen{target.generation}",
            ", ".join(map(str, target.logical_core_sizes)),
        )
        for target in TARGETS.values()
    ]
    return page(
        "# Targets",
        table(("target", "names that mean it", "generation", "logical core sizes"), heads),
        "## Figures",
        "Every number with its source. **Assumed** marks what no public source states.",
        table(
            ("figure", *names),
            ((code(key), *(_figure(figures[name].get(key)) for name in names)) for key in keys),
        ),
        "## Sources",
        table(("abbreviation", "document"), DOCUMENTS.items()),
    )


def _figure(figure: Figure[float] | None) -> str:
    if figure is None:
        return ""
    mark = ", **assumed**" if figure.assumed else ""
    unit = f" {figure.unit}" if figure.unit else ""
    return f"{_plain(figure.value)}{unit} ({figure.source}{mark})"


def _plain(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:,}"


def _operators() -> str:
    arithmetic = [row for row in ALU.values() if row.arithmetic]
    bits = [row for row in ALU.values() if not row.arithmetic]
    return page(
        "# ALU operators",
        "What `op`, `op0` and `op1` take, as names of `nki.language`. `x` is the data or left "
        "operand, `y` the other.",
        "## Arithmetic",
        "Computed in fp32, each step rounded once; the gpsimd engine computes on 32-bit integers "
        "when all tiles are int32 or all are uint32.",
        _operator_table(arithmetic),
        "## Bit vector",
        "Computed on the bit patterns of integers, without conversion.",
        _operator_table(bits),
    )


def _operator_table(rows: Iterable[AluOperator]) -> str:
    return table(
        (
            "name",
            "meaning",
            "engines",
            "with a scalar on",
            "reduces",
            "generations",
            "assumed",
            "source",
        ),
        (
            (
                code(row.name),
                code(row.expression),
                engines(row.engines),
                engines(row.tensor_scalar_engines),
                _reduction(row),
                generations(row.generations),
                row.assumed,
                cited(row.document),
            )
            for row in rows
        ),
    )


def _reduction(row: AluOperator) -> str:
    if not row.reduces:
        return ""
    finish = "" if row.finish is None else f", then {code(row.finish)}"
    if row.identity is None:
        return "from the first element" + finish
    return f"from {_number(row.identity)}{finish}"


def _activations() -> str:
    return page(
        "# Activation functions",
        "What the `op` of `nki.isa.activation` takes. The result is the function of "
        "`data * scale + bias`, in fp32. Results outside the valid range are undefined on "
        "hardware. A change from one table set to another costs a table load.",
        table(
            ("name", "meaning", "valid for", "table set", "bias", "parameter", "assumed", "source"),
            (
                (
                    code(row.name),
                    code(row.expression),
                    _range(row),
                    row.table_set + (" (assumed)" if row.table_set_assumed else ""),
                    generations(row.bias_generations),
                    code(row.parameter) if row.parameter else "",
                    row.assumed,
                    cited(row.document),
                )
                for row in ACTIVATIONS.values()
            ),
        ),
    )


def _range(row: ScalarEngineFunction) -> str:
    if math.isinf(row.lowest) and math.isinf(row.highest):
        return "all"
    name = "|x|" if row.range_of_magnitude else "x"
    return f"{_number(row.lowest)} <= {name} <= {_number(row.highest)}"


def _memories() -> str:
    conflicts = [
        (
            row.memory.value,
            " and ".join(e.name for e in row.engines),
            generations(row.generations),
            ", ".join(
                words
                for words, flag in (
                    ("same PSUM bank", row.same_bank),
                    ("while the first runs a performance mode", row.fast_modes_only),
                )
                if flag
            )
            or "always",
            cited(row.source),
        )
        for row in PORT_CONFLICTS
    ]
    return page(
        "# Memories",
        "Capacities are figures of the [targets](targets.md).",
        table(
            ("memory", "read by", "written by", "partitions", "shared by cores", "source"),
            (
                (
                    code(row.memory.value),
                    engines(row.readers),
                    engines(row.writers),
                    "yes" if row.partitioned else "no",
                    "yes" if row.shared_by_cores else "no",
                    cited(row.source),
                )
                for row in MEMORIES.values()
            ),
        ),
        "## Start partitions",
        "Where an access of so many partitions may start:",
        table(("partitions", "start"), _starts()),
        source("ARCH2"),
        "## Port conflicts",
        "Two engines that cannot access a memory at the same time:",
        table(("memory", "engines", "generations", "when", "source"), conflicts),
        "The sources' abbreviations are on the page of the [targets](targets.md).",
    )


def _starts() -> list[tuple[str, str]]:
    """Runs of partition counts with the same allowed starts."""
    runs: list[tuple[int, int, tuple[int, ...]]] = []
    for number in range(1, 129):
        starts = start_partitions(number)
        if runs and runs[-1][2] == starts:
            runs[-1] = (runs[-1][0], number, starts)
        else:
            runs.append((number, number, starts))
    return [(f"{low} to {high}", ", ".join(map(str, starts))) for low, high, starts in runs]


def _costs() -> str:
    return page(
        "# Cost formulas",
        "The page of a [machine instruction](machine/index.md) states formulas for the time that "
        "it occupies its engine. They are in terms of these quantities of the instruction:",
        table(("quantity", "what it is"), ((code(n), text) for n, text in QUANTITIES.items())),
        "A streamed operand is any operand except columns. Units are cycles of the engine, or ns.",
        "Abbreviations of sources are on the page of the [targets](targets.md).",
    )


def _metrics() -> str:
    rows = [(code(one.name), one.unit, one.reason) for one in METRICS.values()]
    computed = sum(not reason for _, _, reason in rows)
    return page(
        "# Metrics of the vendor's profiler",
        f"Summaries of Neuron Explorer have {len(rows)} figures. A profile has "
        f"{computed} of them, in its text, on its page and in `summary` of `to_dict()`, "
        "and `is_simulation`, which is true. Percentages are from 0 to 100.",
        "Figures of transfers count the rows that moved, those of bytes on chip all rows of a "
        "gather. An engine that computes less than it issues is active while it issues.",
        table(("name", "unit", "why a profile does not have it"), rows),
        "Source: SDK tools/neuron-explorer/profile-schema-reference.rst (Summary).",
    )
