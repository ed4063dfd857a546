"""The model files: inputs, golden outputs, and what counts as agreement.

README.md of ../shared/conformance defines all of it.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

MODELS = Path(__file__).resolve().parents[3] / "shared" / "conformance" / "models"

TOLERANCES = {
    ("float32", "inference"): 1e-3,
    ("float32", "training"): 5e-3,
    ("bfloat16", "inference"): 3e-2,
    ("bfloat16", "training"): 6e-2,
}
"""By the type that the model computes in and its kind of step."""

SAMPLED_TOKENS = frozenset({"gpt2_generate_loop_f32"})
"""Models whose integer outputs are sampled or arg-max tokens."""

FORMS = [("trn1", 1), ("trn2", 1), ("trn3", 1), ("trn2", 2), ("trn3", 2)]
"""Targets and cores for which each model is compiled."""

WITHOUT_GOLDEN = {
    "nki_customcall_block": "a NumPy reference",
    "tp_mlp_shardmap_bf16": "a NumPy reference over 8 simulated ranks",
    "dp_train_gspmd_f32": "a named error: it needs a partitioner",
}
"""Models without golden outputs, and what they are compared with instead."""


@dataclass(frozen=True)
class Model:
    """One model file."""

    name: str
    inputs: tuple[dict[str, Any], ...]

    @property
    def path(self) -> Path:
        return MODELS / f"{self.name}.hlo.pb"

    @property
    def tolerance(self) -> float:
        low = any(item["dtype"] in ("bfloat16", "float8_e4m3fn") for item in self.inputs)
        dtype = "bfloat16" if low or "bf16" in self.name else "float32"
        return TOLERANCES[dtype, "training" if "train" in self.name else "inference"]


@cache
def models() -> dict[str, Model]:
    """All models by name."""
    rows = json.loads((MODELS / "index.json").read_text())
    return {name: Model(name, tuple(row["inputs"])) for name, row in rows.items()}


@cache
def _golden_maker() -> Any:
    spec = importlib.util.spec_from_file_location("make_goldens", MODELS / "make_goldens.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inputs_of(model: Model) -> list[np.ndarray[Any, Any]]:
    """The inputs for which the golden outputs were made."""
    make = _golden_maker().make_input
    return [
        np.asarray(make(position, item["name"], item["shape"], item["dtype"]))
        for position, item in enumerate(model.inputs)
    ]


def golden_of(model: Model) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Per output: the stored sample, and (stride, size, mean, standard deviation, NaN count)."""
    with np.load(MODELS / f"{model.name}.golden.npz") as stored:
        count = sum(key.endswith("_sample") for key in stored)
        return [(stored[f"out{i}_sample"], stored[f"out{i}_meta"]) for i in range(count)]


def disagreement(
    output: np.ndarray[Any, Any],
    sample: np.ndarray[Any, Any],
    meta: np.ndarray[Any, Any],
    tolerance: float,
) -> str:
    """Why an output does not agree with its golden; "" where it does."""
    stride, size, mean, deviation, nans = meta
    if output.size != size:
        return f"{output.size} elements instead of {int(size)}"
    values = output.astype(np.float64).ravel()
    found = values[:: int(stride)][: len(sample)]
    if np.isnan(values).sum() != nans:
        return f"{np.isnan(values).sum()} NaN instead of {int(nans)}"
    if output.dtype.kind in "biu":
        wrong = int((found != sample).sum())
        return f"{wrong} of {len(sample)} integers differ" if wrong else ""
    if not size or nans:
        return ""
    difference, scale = np.abs(found - sample).max(), np.abs(sample).max()
    if not difference <= tolerance * scale + 1e-6:
        return f"max|a - b| = {difference:.3g}, max|b| = {scale:.3g}, tolerance {tolerance:g}"
    # Of equal elements (a loss, a counter) the deviation is 0: their own value is the scale.
    off, spread = abs(values.mean() - mean), deviation or abs(mean)
    if not off <= tolerance * spread + 1e-6:
        return f"mean off by {off:.3g}, standard deviation {deviation:.3g}, tolerance {tolerance:g}"
    return ""


def _relative_error(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> float:
    """max|a - b| over max|b|."""
    return float(np.abs(found - wanted).max(initial=0) / (np.abs(wanted).max(initial=0) or 1))


def examined(
    model: Model, outputs: list[np.ndarray[Any, Any]], exact: list[np.ndarray[Any, Any]]
) -> tuple[float, list[str]]:
    """A model that fails, examined with `exact`, the outputs of the same graph in float64.

    Returns how uncertain the golden outputs are (their largest error against float64), and what
    still disagrees: all that disagreed, unless the golden outputs are off by more than the
    tolerance themselves. Then the float64 outputs take their place for the outputs that disagree,
    within twice that uncertainty: two runs with the graph's own rounding may be that far apart.
    """
    golden = golden_of(model)

    def sampled(array: np.ndarray[Any, Any], position: int) -> np.ndarray[Any, Any]:
        sample, meta = golden[position]
        return np.asarray(array).astype(np.float64).ravel()[:: int(meta[0])][: len(sample)]

    uncertainty = max(
        _relative_error(sample, sampled(exact[position], position))
        for position, (sample, _) in enumerate(golden)
    )
    if uncertainty <= model.tolerance:
        return uncertainty, disagreements(model, outputs)
    found = []
    for position, output in enumerate(outputs):
        sample, meta = golden[position]
        if disagreement(np.asarray(output), sample, meta, model.tolerance):
            error = _relative_error(sampled(output, position), sampled(exact[position], position))
            if not error <= 2 * uncertainty:
                found.append(f"output {position}: off float64 by {error:.3g}")
    return uncertainty, found


def disagreements(model: Model, outputs: list[np.ndarray[Any, Any]]) -> list[str]:
    """Each output that does not agree with its golden, and why."""
    golden = golden_of(model)
    if len(outputs) != len(golden):
        return [f"{len(outputs)} outputs instead of {len(golden)}"]
    found = []
    for position, (output, (sample, meta)) in enumerate(zip(outputs, golden)):
        reason = disagreement(np.asarray(output), sample, meta, model.tolerance)
        if reason:
            found.append(f"output {position}: {reason}")
    return found


def in_float64(module: Any) -> Any:
    """The same graph, computed in float64: what its outputs are without rounding.

    Every floating-point value becomes float64; conversions between floating-point types become
    the identity. Bits of numbers (`bitcast-convert`, of random generators) stay those of the
    graph's own types.
    """
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.hlo.proto import from_proto, to_proto
    from graph_compiler.hlo.types import Shape

    def wide(shape: Shape) -> Shape:
        if shape.is_tuple:
            return Shape.tuple_of(wide(part) for part in shape.tuple_shapes)
        return shape.with_element_type("f64") if is_float(shape) else shape

    def is_float(shape: Shape) -> bool:
        return shape.is_array and shape.primitive.is_float

    module = from_proto(to_proto(module))
    for computation in module.computations:
        computation.attributes.pop("program_shape", None)
        for item in computation.instructions:
            literal = item.attributes.get("literal")
            if literal is not None and is_float(item.shape):
                item.attributes["literal"] = literal.astype(np.float64)
        bits = [i for i in computation.instructions if i.opcode == "bitcast-convert"]
        narrow = {id(item): item.shape for item in bits}
        sources = {id(item): item.operands[0].shape for item in bits}
        for item in computation.instructions:
            item.shape = wide(item.shape)
        for item in bits:
            position = computation.instructions.index(item)
            if is_float(sources[id(item)]):
                source = Instruction("convert", sources[id(item)], item.operands)
                computation.instructions.insert(position, source)
                item.operands = [source]
                position += 1
            if is_float(narrow[id(item)]):
                # The bits come from a new instruction; this one becomes their conversion.
                cast = Instruction(
                    "bitcast-convert", narrow[id(item)], item.operands, attributes=item.attributes
                )
                computation.instructions.insert(position, cast)
                item.opcode, item.attributes, item.operands = "convert", {}, [cast]
    module.renumber()
    return module


def in_double(arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Floating-point arrays as float64, others as they are."""
    return [a if a.dtype.kind in "biu" else a.astype(np.float64) for a in arrays]


def judged(
    model: Model,
    module: Any,
    inputs: list[np.ndarray[Any, Any]],
    outputs: list[np.ndarray[Any, Any]],
) -> tuple[list[str], str]:
    """What disagrees with the golden outputs, examined by the graph in float64 if anything does;
    and a remark where that found the golden outputs too far off."""
    from graph_compiler import evaluate

    found = disagreements(model, outputs)
    if not found:
        return [], ""
    exact = evaluate(in_float64(module), *in_double(inputs))
    uncertainty, remaining = examined(model, outputs, exact)
    if remaining == found:
        return found, ""
    return remaining, f"{len(found)} outputs by float64: the golden is {uncertainty:.2g} from it"
