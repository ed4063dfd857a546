"""One run of a graph from the command line: its inputs, who computes it, what came out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.evaluate import LOOP_LIMIT, evaluate
from graph_compiler.execute import execute
from graph_compiler.frontends import xla
from graph_compiler.frontends.sniff import load
from graph_compiler.hlo.operators.row import Array, Value
from graph_compiler.hlo.types import Shape
from graph_compiler.sample_inputs import fitted, sample_inputs
from isa.errors import NeuronError
from nki.report import Facts, Report, Section, Table

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Module
    from nki.expected import OutputComparison

_FIRST = 4
"""How many values of an output are shown."""

_SMALLEST = 2.0**-13
"""The least tolerance of a comparison: sums may be made in another order."""

ExecuteFunction = Callable[["GraphRun"], list[Array]]


@dataclass(frozen=True, slots=True)
class GraphRun:
    """A graph with a value for every parameter, in their order."""

    module: Module
    values: tuple[Value, ...]
    sources: tuple[str, ...]
    seed: int
    ranks: int = 1
    partitions: int | None = None
    loop_limit: int = LOOP_LIMIT

    @staticmethod
    def prepared(
        file: str, inputs: Sequence[str], seed: int, ranks: int, partitions: int | None
    ) -> GraphRun:
        """A graph from a file with the inputs of the command line, seeded ones for the rest.

        Raises the errors of loading, and bad-input-spec, unknown-input, file-not-found.
        """
        from nki.cli.input_specs import match_parameters, read_inputs
        from nki.cli.input_values import Inputs

        module = load(file)
        specs = read_inputs(inputs, {})
        match_parameters(
            specs, {}, dict.fromkeys((item.name for item in module.parameters), False), module.name
        )
        values, sources = sample_inputs(module, seed), {}
        made = Inputs(specs, seed)
        for item in module.parameters:
            spec = specs.get(item.name)
            sources[item.name] = f"seed {seed}" if spec is None else spec.text.partition("=")[2]
            if spec is not None:
                array = made.array(item.name)
                values[item.name] = fitted(array, item.shape, convert=spec.dtype is None)
        return GraphRun(
            module, tuple(values.values()), tuple(sources.values()), seed, ranks, partitions
        )

    def execute(self, executor: ExecuteFunction) -> list[Array]:
        """The outputs of the entry computation, components one after another."""
        return executor(self)

    def compared(
        self, outputs: list[Array], expected: list[Array], tolerance: float | None
    ) -> list[OutputComparison]:
        """Every output with what another executor gave for it."""
        from nki.expected import compare_all

        found = []
        for output, other in zip(outputs, expected):
            bound = _tolerance(output) if tolerance is None else tolerance
            found += compare_all([_reals(output)], [_reals(other)], bound)
        return found

    def report(
        self,
        executor: str,
        compare: str | None,
        named: dict[str, Array],
        comparisons: list[OutputComparison] | None,
        saved: list[str],
    ) -> Report:
        """What the run shows."""
        from nki.cli.run import comparison_table, outputs_table

        inputs = [
            {"name": item.name, "shape": str(item.shape.plain()), "source": source}
            for item, source in zip(self.module.parameters, self.sources)
        ]
        outputs = [_described(name, array) for name, array in named.items()]
        data = {
            "module": self.module.name,
            "executor": executor,
            "seed": self.seed,
            "ranks": self.ranks,
            "partitions": self.partitions,
            "inputs": inputs,
            "outputs": outputs,
            "compared_with": compare,
            "comparison": None if comparisons is None else [c.data() for c in comparisons],
            "saved": saved,
        }
        head = Facts.of(
            "",
            module=self.module.name,
            executor=executor,
            ranks=self.ranks if self.ranks > 1 else None,
        )
        rows = [tuple(row.values()) for row in inputs]
        sections: list[Section] = [head]
        if rows:
            sections.append(Table.of("inputs", ("name", "shape", "values"), rows))
        sections.append(outputs_table(outputs))
        if comparisons is not None:
            sections.append(comparison_table(comparisons, list(named)))
        if saved:
            sections.append("\n".join(f"wrote {path}" for path in saved))
        return Report(data, sections)


def _host(run: GraphRun) -> list[Array]:
    return execute(run.module, *run.values, seed=run.seed, loop_limit=run.loop_limit)


def _reference(run: GraphRun) -> list[Array]:
    return evaluate(
        run.module,
        *run.values,
        ranks=run.ranks,
        partitions=run.partitions,
        seed=run.seed,
        loop_limit=run.loop_limit,
    )


def _by_xla(run: GraphRun) -> list[Array]:
    for item, value in zip(run.module.parameters, run.values):
        if any(not leaf.is_array for leaf in item.shape.leaves()) or isinstance(value, tuple):
            raise NeuronError(
                "hlo-not-supported",
                f"parameter `{item.name}` is {item.shape}: XLA takes arrays here.",
                hint="Run the graph with --executor reference.",
            )
    return xla.run(run.module, *run.values)


EXECUTORS: dict[str, ExecuteFunction] = {"host": _host, "reference": _reference, "xla": _by_xla}
"""Who can compute a graph, by the name on the command line."""

_SEVERAL_RANKS = frozenset({"reference"})
"""Executors that simulate several ranks."""


def default_executor(ranks: int) -> str:
    """The fastest executor that simulates so many ranks."""
    return "host" if ranks == 1 else "reference"


def chosen_executor(name: str, ranks: int) -> ExecuteFunction:
    """The executor of a name. Raises NeuronError unknown-mode."""
    if name not in EXECUTORS:
        raise NeuronError("unknown-mode", f"executor {name!r} is none of {', '.join(EXECUTORS)}")
    if ranks > 1 and name not in _SEVERAL_RANKS:
        raise NeuronError("unknown-mode", f"executor {name!r} runs graphs of one rank, not {ranks}")
    return EXECUTORS[name]


def _reals(array: Array) -> Array:
    """Complex numbers as pairs, everything else as it is."""
    if array.dtype.kind != "c":
        return array
    return np.ascontiguousarray(array)[..., np.newaxis].view(array.real.dtype)


def _tolerance(array: Array) -> float:
    """Two units in the last place of the type, at least 2^-13; 0 for integers and pred."""
    primitive = Shape.of(array).primitive
    if not (primitive.is_float or primitive.is_complex):
        return 0.0
    import ml_dtypes

    return max(2 * float(ml_dtypes.finfo(_reals(array).dtype).eps), _SMALLEST)


def _described(name: str, array: Array) -> dict[str, Any]:
    """Type, extremes, mean and first values of an output; of complex numbers their moduli."""
    with np.errstate(all="ignore"):
        values = (np.abs(array) if array.dtype.kind == "c" else array).astype(np.float64)
        some = values.size > 0
        return {
            "name": name,
            "shape": list(array.shape),
            "dtype": Shape.of(array).element_type,
            "minimum": float(values.min()) if some else None,
            "maximum": float(values.max()) if some else None,
            "mean": float(values.mean()) if some else None,
            "first": values.reshape(-1)[:_FIRST].tolist(),
        }
