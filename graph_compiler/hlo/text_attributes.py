"""The attributes of instructions in HLO text, a row each: how one is shown and how it is read.

`ATTRIBUTES` lists them in the order in which they are printed (`graph_compiler.hlo.text_attribute`
has the forms that most of them are of). Source: what XLA prints, https://openxla.org/xla/hlo_dumps.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from graph_compiler.hlo.graph import Instruction
from graph_compiler.hlo.proto_fields import ENUMERATIONS
from graph_compiler.hlo.record import Record, fields_of
from graph_compiler.hlo.text_attribute import (
    STATED,
    TextAttribute,
    enumeration_attribute,
    flag_attribute,
    number_attribute,
    numbers_attribute,
    part_attribute,
    quoted_attribute,
    row_attribute,
    word_attribute,
)
from graph_compiler.hlo.text_forms import (
    joined,
    read_accuracy,
    read_aliases,
    read_config,
    read_frontend,
    read_labels,
    read_leaves,
    read_padding,
    read_pairs,
    read_slices,
    read_window,
    show_accuracy,
    show_aliases,
    show_config,
    show_frontend,
    show_labels,
    show_leaves,
    show_padding,
    show_pairs,
    show_slices,
    show_window,
    shown_list,
)
from graph_compiler.hlo.text_scan import (
    boolean,
    inside,
    integer,
    integers,
    quote,
    split,
    string_bytes,
)
from graph_compiler.hlo.text_sharding import (
    parse_devices,
    parse_mesh_axes,
    parse_sharding,
    show_devices,
    show_groups,
    show_mesh_axes,
    show_sharding,
)
from graph_compiler.hlo.text_values import parse_shape, show_shape


def defaults(instruction: Instruction) -> dict[str, Any]:
    """Attributes that text leaves out and the proto states, by field."""
    return _DEFAULTS.get(instruction.opcode, _no_defaults)(instruction)


def _no_defaults(instruction: Instruction) -> dict[str, Any]:
    return {}


def _precision(instruction: Instruction) -> dict[str, Any]:
    """Of every operand; of the group sizes of a ragged-dot (operand 2) there is none."""
    count = len(instruction.operands)
    if instruction.opcode in _TWO_PRECISIONS:
        count = min(count, 2)
    values = {"operand_precision": ("DEFAULT",) * count} if count else {}
    return {"precision_config": Record("PrecisionConfig", **values)}


_TWO_PRECISIONS = frozenset({"ragged-dot"})


def _groups(instruction: Instruction) -> dict[str, Any]:
    return {"feature_group_count": 1, "batch_group_count": 1, **_precision(instruction)}


def _convolution(instruction: Instruction) -> dict[str, Any]:
    return {**_groups(instruction), "sparsity_config": Record("SparsityConfig")}


def _custom_call(instruction: Instruction) -> dict[str, Any]:
    return {**_groups(instruction), "custom_call_api_version": "API_VERSION_ORIGINAL"}


_COMPARISONS = {"signed": "SIGNED", "float": "FLOAT", "complex": "FLOAT"}


def _compare(instruction: Instruction) -> dict[str, Any]:
    if not instruction.operands:
        return {}
    kind = instruction.operands[0].shape.primitive.kind
    return {"comparison_type": _COMPARISONS.get(kind, "UNSIGNED")}


_DEFAULTS: dict[str, Callable[[Instruction], dict[str, Any]]] = {
    "dot": _precision,
    "ragged-dot": _precision,
    "convolution": _convolution,
    "custom-call": _custom_call,
    "compare": _compare,
}


def _show_precisions(instruction: Instruction) -> str | None:
    config = instruction.attributes.get("precision_config")
    if config is None or all(value == "DEFAULT" for value in config.operand_precision):
        return None
    return "{" + ",".join(str(value).lower() for value in config.operand_precision) + "}"


def _read_precisions(text: str, attributes: dict[str, Any]) -> None:
    values = tuple(part.upper() for part in split(inside(text)))
    if unknown := set(values) - set(ENUMERATIONS["Precision"]):
        raise ValueError(f"unknown precision {unknown.pop().lower()}")
    attributes.setdefault("precision_config", Record("PrecisionConfig")).values[
        "operand_precision"
    ] = values


def _show_algorithm(instruction: Instruction) -> str | None:
    config = instruction.attributes.get("precision_config")
    if config is not None and config.algorithm != "ALG_UNSET":
        return str(config.algorithm).removeprefix("ALG_").lower()
    algorithm = instruction.attributes.get("rng_algorithm")
    if algorithm is None:
        stated = "algorithm" in STATED.get(instruction.opcode, ())
        return "rng_default" if stated else None
    return str(algorithm).lower()


def _read_algorithm(text: str, attributes: dict[str, Any]) -> None:
    if text.upper() in ENUMERATIONS["RandomAlgorithm"]:
        if text != "rng_default":
            attributes["rng_algorithm"] = text.upper()
        return
    value = "ALG_" + text.upper()
    if value not in ENUMERATIONS["DotAlgorithm"]:
        raise ValueError(f"unknown algorithm {text[:40]!r}")
    attributes.setdefault("precision_config", Record("PrecisionConfig")).values["algorithm"] = value


def _read_constraints(text: str, attributes: dict[str, Any]) -> None:
    attributes["constrain_layout"] = True
    shapes = tuple(parse_shape(part) for part in split(inside(text)))
    if shapes:
        attributes["operand_shapes_with_layout"] = shapes


_CONSTRAINTS = ("constrain_layout", "operand_shapes_with_layout")


def _show_constraints(instruction: Instruction) -> str | None:
    shapes = instruction.attributes.get("operand_shapes_with_layout", ())
    if not instruction.attributes.get("constrain_layout") or not shapes:
        return None
    return shown_list(show_shape(shape) for shape in shapes)


def _show_replica_groups(instruction: Instruction) -> str | None:
    attributes = instruction.attributes
    mesh, iota = (attributes.get(name) for name in ("mesh_axes_replica_group_list", _IOTA_GROUPS))
    if mesh is not None:
        return show_mesh_axes(mesh)
    if iota is not None:
        return show_devices(Record("CollectiveDeviceListProto", iota_replica_group_list=iota))
    devices = attributes.get("collective_device_list")
    if devices is not None:
        return show_devices(devices)
    groups = attributes.get("replica_groups")
    if groups is None:
        return "{}" if "replica_groups" in STATED.get(instruction.opcode, ()) else None
    return show_groups(groups)


_IOTA_GROUPS = "iota_collective_device_list"
_REPLICA_GROUPS = (
    "mesh_axes_replica_group_list",
    _IOTA_GROUPS,
    "collective_device_list",
    "replica_groups",
)


def _read_replica_groups(text: str, attributes: dict[str, Any]) -> None:
    if text.startswith("mesh"):
        attributes["mesh_axes_replica_group_list"] = parse_mesh_axes(text)
        return
    devices = parse_devices(text)
    if devices.iota_replica_group_list is not None:
        attributes[_IOTA_GROUPS] = devices.iota_replica_group_list
    else:
        attributes["collective_device_list"] = devices


_TRUTHS = {"TRI_STATE_TRUE": "true", "TRI_STATE_FALSE": "false"}


def _read_truth(text: str) -> str:
    return "TRI_STATE_TRUE" if boolean(text) else "TRI_STATE_FALSE"


_DOT = ("dot_dimension_numbers", "DotDimensionNumbers")
_RAGGED = (
    ("lhs_batch_dims", "lhs_batch_dimensions"),
    ("lhs_contracting_dims", "lhs_contracting_dimensions"),
    ("rhs_batch_dims", "rhs_batch_dimensions"),
    ("rhs_contracting_dims", "rhs_contracting_dimensions"),
    ("lhs_ragged_dims", "lhs_ragged_dimensions"),
    ("rhs_group_dims", "rhs_group_dimensions"),
)
"""Attributes of ragged-dot; fields of its dimension numbers, or of the dot's within them."""


def _ragged_part(name: str, part: str) -> TextAttribute:
    field, kind, inner = "ragged_dot_dimension_numbers", "RaggedDotDimensionNumbers", _DOT
    within = part in fields_of(inner[1])

    def show(instruction: Instruction) -> str | None:
        record = instruction.attributes.get(field)
        if record is not None and within:
            record = getattr(record, inner[0])
        value = () if record is None else getattr(record, part)
        return joined(value) if value else None

    def read(text: str, attributes: dict[str, Any]) -> None:
        record = attributes.setdefault(field, Record(kind))
        if within:
            record = record.values.setdefault(inner[0], Record(inner[1]))
        if numbers := integers(text):
            record.values[part] = numbers

    return TextAttribute(name, show, read, only=frozenset({"ragged-dot"}), parts=(field,))


_DOMAIN = re.compile(r'\{\s*kind="sharding",\s*entry=(\{.*\}),\s*exit=(\{.*\})\s*\}')
_DOMAIN_FIELDS = ("domain_entry_sharding", "domain_exit_sharding")


def _show_domain(instruction: Instruction) -> str | None:
    found = [instruction.attributes.get(name) for name in _DOMAIN_FIELDS]
    shown = [None if sharding is None else show_sharding(sharding) for sharding in found]
    if None in shown:
        return None
    return f'{{kind="sharding", entry={shown[0]}, exit={shown[1]}}}'


def _read_domain(text: str, attributes: dict[str, Any]) -> None:
    found = _DOMAIN.fullmatch(text)
    if found is None:
        raise ValueError("a domain has a kind, an entry and an exit")
    for name, sharding in zip(_DOMAIN_FIELDS, found.groups()):
        attributes[name] = parse_sharding(sharding)


_SOLVE = ("triangular_solve_options", "TriangularSolveOptions")
_GATHER = ("gather_dimension_numbers", "GatherDimensionNumbers")
_SCATTER = ("scatter_dimension_numbers", "ScatterDimensionNumbers")

ATTRIBUTES: tuple[TextAttribute, ...] = (
    numbers_attribute("dimensions", never="iota"),
    row_attribute(
        "iota_dimension",
        "dimensions",
        lambda value: str(value[0]) if len(value) == 1 else None,
        lambda text: (integer(text),),
        only="iota",
    ),
    number_attribute("index", "tuple_index"),
    row_attribute("slice", "slice_dimensions", show_slices, read_slices, ()),
    numbers_attribute("dynamic_slice_sizes"),
    row_attribute("padding", "padding_config", show_padding, read_padding),
    row_attribute("window", "window", show_window, read_window),
    row_attribute("dim_labels", "convolution_dimension_numbers", show_labels, read_labels),
    row_attribute("feature_group_count", "feature_group_count", str, integer, 1),
    row_attribute("batch_group_count", "batch_group_count", str, integer, 1),
    part_attribute("lhs_batch_dims", *_DOT, "lhs_batch_dimensions", never="ragged-dot"),
    part_attribute("lhs_contracting_dims", *_DOT, "lhs_contracting_dimensions", never="ragged-dot"),
    part_attribute("rhs_batch_dims", *_DOT, "rhs_batch_dimensions", never="ragged-dot"),
    part_attribute("rhs_contracting_dims", *_DOT, "rhs_contracting_dimensions", never="ragged-dot"),
    *(_ragged_part(*names) for names in _RAGGED),
    TextAttribute("domain", _show_domain, _read_domain, parts=_DOMAIN_FIELDS),
    part_attribute("offset_dims", *_GATHER, "offset_dims"),
    part_attribute("collapsed_slice_dims", *_GATHER, "collapsed_slice_dims"),
    part_attribute("start_index_map", *_GATHER, "start_index_map"),
    part_attribute("operand_batching_dims", *_GATHER, "operand_batching_dims"),
    part_attribute("start_indices_batching_dims", *_GATHER, "start_indices_batching_dims"),
    part_attribute("update_window_dims", *_SCATTER, "update_window_dims"),
    part_attribute("inserted_window_dims", *_SCATTER, "inserted_window_dims"),
    part_attribute("scatter_dims_to_operand_dims", *_SCATTER, "scatter_dims_to_operand_dims"),
    part_attribute("input_batching_dims", *_SCATTER, "input_batching_dims"),
    part_attribute("scatter_indices_batching_dims", *_SCATTER, "scatter_indices_batching_dims"),
    part_attribute("index_vector_dim", *_GATHER, "index_vector_dim", only="gather"),
    part_attribute("index_vector_dim", *_SCATTER, "index_vector_dim", only="scatter"),
    numbers_attribute("slice_sizes", "gather_slice_sizes"),
    flag_attribute("indices_are_sorted"),
    flag_attribute("unique_indices"),
    word_attribute("direction", "comparison_direction"),
    word_attribute("type", "comparison_type"),
    number_attribute("exponent_bits"),
    number_attribute("mantissa_bits"),
    enumeration_attribute("fft_type", "fft_type", "FftType"),
    numbers_attribute("fft_length"),
    row_attribute("epsilon", "epsilon", lambda value: f"{value:.9g}", float, 0.0),
    number_attribute("feature_index"),
    flag_attribute("is_stable"),
    flag_attribute("is_reverse"),
    number_attribute("num_carries"),
    row_attribute("is_associative", "is_associative", _TRUTHS.get, _read_truth),
    number_attribute("k"),
    flag_attribute("largest"),
    number_attribute("delta"),
    enumeration_attribute("distribution", "distribution", "RandomDistribution", lower=True),
    TextAttribute(
        "operand_precision", _show_precisions, _read_precisions, parts=("precision_config",)
    ),
    TextAttribute(
        "algorithm", _show_algorithm, _read_algorithm, parts=("precision_config", "rng_algorithm")
    ),
    row_attribute("result_accuracy", "result_accuracy", show_accuracy, read_accuracy),
    part_attribute("left_side", *_SOLVE, "left_side"),
    part_attribute("lower", *_SOLVE, "lower", never="cholesky"),
    part_attribute("lower", "cholesky_options", "CholeskyOptions", "lower", only="cholesky"),
    part_attribute("unit_diagonal", *_SOLVE, "unit_diagonal"),
    part_attribute("transpose_a", *_SOLVE, "transpose_a"),
    number_attribute("channel_id"),
    TextAttribute(
        "replica_groups", _show_replica_groups, _read_replica_groups, parts=_REPLICA_GROUPS
    ),
    row_attribute("source_target_pairs", "source_target_pairs", show_pairs, read_pairs, ()),
    flag_attribute("constrain_layout", never="custom-call"),
    flag_attribute("use_global_device_ids"),
    flag_attribute("is_host_transfer"),
    flag_attribute("is_composite"),
    quoted_attribute("custom_call_target"),
    TextAttribute(
        "operand_layout_constraints", _show_constraints, _read_constraints, parts=_CONSTRAINTS
    ),
    flag_attribute("custom_call_has_side_effect"),
    row_attribute(
        "output_to_operand_aliasing", "output_operand_aliasing", show_aliases, read_aliases, ()
    ),
    enumeration_attribute("schedule", "custom_call_schedule", "CustomCallSchedule"),
    enumeration_attribute(
        "api_version",
        "custom_call_api_version",
        "CustomCallApiVersion",
        empty="API_VERSION_ORIGINAL",
    ),
    enumeration_attribute("padding_type", "padding_type", "PaddingType"),
    word_attribute("kind", "fusion_kind"),
    quoted_attribute("async_execution_thread"),
    row_attribute("outfeed_config", "outfeed_config", quote, string_bytes, b""),
    row_attribute("infeed_config", "infeed_config", quote, string_bytes, b""),
    row_attribute("outfeed_shape", "outfeed_shape", show_shape, parse_shape),
    row_attribute("parameter_replication", "parameter_replication", show_leaves, read_leaves),
    row_attribute("sharding", "sharding", show_sharding, parse_sharding),
    row_attribute("frontend_attributes", "frontend_attributes", show_frontend, read_frontend),
    row_attribute("backend_config", "backend_config", show_config, read_config, b""),
)


def _by_name() -> dict[str, list[TextAttribute]]:
    found: dict[str, list[TextAttribute]] = {}
    for row in ATTRIBUTES:
        found.setdefault(row.name, []).append(row)
    return found


BY_NAME: dict[str, list[TextAttribute]] = _by_name()
"""The rows of each name: more than one where it means different fields of different opcodes."""
