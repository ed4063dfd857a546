"""The attributes of instructions in HLO text, a row each: how one is shown and how it is read.

`ATTRIBUTES` lists them in the order in which they are printed. A row's `show` gives the text, or
None where the instruction does not state the attribute; its `read` puts the value into the
attributes under the names of the proto's fields, and raises ValueError where it cannot.
Source: what XLA prints, https://openxla.org/xla/hlo_dumps.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graph_compiler.hlo.graph import Instruction
from graph_compiler.hlo.proto_fields import ENUMERATIONS
from graph_compiler.hlo.record import Record, fields_of
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
    string,
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

Show = Callable[[Instruction], str | None]
Read = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class TextAttribute:
    """An attribute of HLO text. `only` and `never`: opcodes that show it, or do not.

    `field`: the field of the proto that it states alone; "" where it states a part, or several.
    `parts`: the fields of the latter. Without any of its fields it is shown only where `STATED`.
    """

    name: str
    show: Show
    read: Read
    only: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()
    field: str = ""
    parts: tuple[str, ...] = ()

    def may_show(self, opcode: str, fields: frozenset[str]) -> bool:
        """Whether an instruction that has these fields may state the attribute."""
        if (self.only and opcode not in self.only) or opcode in self.never:
            return False
        return not fields.isdisjoint((self.field, *self.parts)) or self.name in STATED.get(
            opcode, ()
        )


STATED: dict[str, frozenset[str]] = {
    opcode: frozenset(names.split())
    for opcode, names in {
        "broadcast": "dimensions",
        "transpose": "dimensions",
        "reverse": "dimensions",
        "reduce": "dimensions",
        "map": "dimensions",
        "sort": "dimensions",
        "concatenate": "dimensions",
        "iota": "iota_dimension",
        "get-tuple-element": "index",
        "slice": "slice",
        "dynamic-slice": "dynamic_slice_sizes",
        "dot": "lhs_contracting_dims rhs_contracting_dims",
        "gather": "offset_dims collapsed_slice_dims start_index_map index_vector_dim slice_sizes",
        "scatter": "update_window_dims inserted_window_dims scatter_dims_to_operand_dims "
        "index_vector_dim",
        "rng-bit-generator": "algorithm",
        "fft": "fft_type fft_length",
        "topk": "k largest",
        "batch-norm-training": "epsilon feature_index",
        "batch-norm-inference": "epsilon feature_index",
        "batch-norm-grad": "epsilon feature_index",
        "reduce-precision": "exponent_bits mantissa_bits",
        "rng-get-and-update-state": "delta",
        "all-reduce": "replica_groups",
        "all-gather": "replica_groups",
        "all-to-all": "replica_groups",
        "reduce-scatter": "replica_groups",
        "collective-permute": "source_target_pairs",
        "scan": "dimensions",
    }.items()
}
"""Attributes that an opcode shows even where they are empty or zero."""


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


def _row(
    name: str,
    field: str,
    show: Callable[[Any], str | None],
    read: Callable[[str], Any],
    empty: Any = None,
    only: str = "",
    never: str = "",
) -> TextAttribute:
    """An attribute that is one field. `empty`: the value that is shown only where `STATED`."""

    def show_field(instruction: Instruction) -> str | None:
        value = instruction.attributes.get(field)
        if value is None or value == empty:
            if name not in STATED.get(instruction.opcode, ()):
                return None
            value = empty if value is None else value
            if value is None:
                return None
        return show(value)

    def read_field(text: str, attributes: dict[str, Any]) -> None:
        value = read(text)
        # Text states what a proto leaves out: zero, false, an empty list.
        if value != empty or isinstance(value, Record):
            attributes[field] = value

    return TextAttribute(
        name, show_field, read_field, frozenset(only.split()), frozenset(never.split()), field
    )


def _numbers(name: str, field: str = "", **options: Any) -> TextAttribute:
    return _row(name, field or name, joined, integers, (), **options)


def _number(name: str, field: str = "", **options: Any) -> TextAttribute:
    return _row(name, field or name, str, integer, 0, **options)


def _flag(name: str, field: str = "", **options: Any) -> TextAttribute:
    return _row(name, field or name, shown_flag, boolean, False, **options)


def shown_flag(value: bool) -> str:
    return "true" if value else "false"


def _word(name: str, field: str, **options: Any) -> TextAttribute:
    return _row(name, field, str, _bare, "", **options)


def _bare(text: str) -> str:
    if not re.fullmatch(r"\w+", text):
        raise ValueError(f"word expected, found {text[:40]!r}")
    return text


def _quoted(name: str, field: str = "", **options: Any) -> TextAttribute:
    return _row(name, field or name, quote, string, "", **options)


def _enumeration(
    name: str, field: str, kind: str, lower: bool = False, empty: str = "", **options: Any
) -> TextAttribute:
    """An enumeration, whose text may be the proto's name in lower case."""
    shown = {value: value.lower() if lower else value for value in ENUMERATIONS[kind]}
    values = {text: value for value, text in shown.items()}

    def read(text: str) -> str:
        if text not in values:
            raise ValueError(f"one of {', '.join(values)} expected, found {text[:40]!r}")
        return values[text]

    return _row(name, field, shown.get, read, empty or ENUMERATIONS[kind][0], **options)


def _part(name: str, field: str, kind: str, part: str, **options: Any) -> TextAttribute:
    """A repeated number or a number that is a field of a message, which is a field."""
    repeated = fields_of(kind)[part].repeated
    empty: Any = () if repeated else fields_of(kind)[part].default
    enumeration = fields_of(kind)[part].type
    if enumeration in ENUMERATIONS:
        return _enumerated_part(name, field, kind, part)
    show: Callable[[Any], str] = joined if repeated else str
    read: Callable[[str], Any] = integers if repeated else integer
    if empty is False:
        show, read = shown_flag, boolean

    def show_part(instruction: Instruction) -> str | None:
        record = instruction.attributes.get(field)
        if record is None or record.message != kind:
            return None
        value = getattr(record, part)
        if value == empty and name not in STATED.get(instruction.opcode, ()):
            return None
        return show(value)

    def read_part(text: str, attributes: dict[str, Any]) -> None:
        record = attributes.setdefault(field, Record(kind))
        value = read(text)
        if value != empty:
            record.values[part] = value

    return TextAttribute(
        name,
        show_part,
        read_part,
        frozenset(options.get("only", "").split()),
        frozenset(options.get("never", "").split()),
        parts=(field,),
    )


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


def _enumerated_part(name: str, field: str, kind: str, part: str) -> TextAttribute:
    values = ENUMERATIONS[fields_of(kind)[part].type]

    def show_part(instruction: Instruction) -> str | None:
        record = instruction.attributes.get(field)
        return None if record is None or part not in record.values else str(record.values[part])

    def read_part(text: str, attributes: dict[str, Any]) -> None:
        if text not in values:
            raise ValueError(f"one of {', '.join(values)} expected, found {text[:40]!r}")
        attributes.setdefault(field, Record(kind)).values[part] = text

    return TextAttribute(name, show_part, read_part, parts=(field,))


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

_ROWS = (
    _numbers("dimensions", never="iota"),
    _row(
        "iota_dimension",
        "dimensions",
        lambda value: str(value[0]) if len(value) == 1 else None,
        lambda text: (integer(text),),
        only="iota",
    ),
    _number("index", "tuple_index"),
    _row("slice", "slice_dimensions", show_slices, read_slices, ()),
    _numbers("dynamic_slice_sizes"),
    _row("padding", "padding_config", show_padding, read_padding),
    _row("window", "window", show_window, read_window),
    _row("dim_labels", "convolution_dimension_numbers", show_labels, read_labels),
    _row("feature_group_count", "feature_group_count", str, integer, 1),
    _row("batch_group_count", "batch_group_count", str, integer, 1),
    _part("lhs_batch_dims", *_DOT, "lhs_batch_dimensions", never="ragged-dot"),
    _part("lhs_contracting_dims", *_DOT, "lhs_contracting_dimensions", never="ragged-dot"),
    _part("rhs_batch_dims", *_DOT, "rhs_batch_dimensions", never="ragged-dot"),
    _part("rhs_contracting_dims", *_DOT, "rhs_contracting_dimensions", never="ragged-dot"),
    *(_ragged_part(*names) for names in _RAGGED),
    TextAttribute("domain", _show_domain, _read_domain, parts=_DOMAIN_FIELDS),
    _part("offset_dims", *_GATHER, "offset_dims"),
    _part("collapsed_slice_dims", *_GATHER, "collapsed_slice_dims"),
    _part("start_index_map", *_GATHER, "start_index_map"),
    _part("operand_batching_dims", *_GATHER, "operand_batching_dims"),
    _part("start_indices_batching_dims", *_GATHER, "start_indices_batching_dims"),
    _part("update_window_dims", *_SCATTER, "update_window_dims"),
    _part("inserted_window_dims", *_SCATTER, "inserted_window_dims"),
    _part("scatter_dims_to_operand_dims", *_SCATTER, "scatter_dims_to_operand_dims"),
    _part("input_batching_dims", *_SCATTER, "input_batching_dims"),
    _part("scatter_indices_batching_dims", *_SCATTER, "scatter_indices_batching_dims"),
    _part("index_vector_dim", *_GATHER, "index_vector_dim", only="gather"),
    _part("index_vector_dim", *_SCATTER, "index_vector_dim", only="scatter"),
    _numbers("slice_sizes", "gather_slice_sizes"),
    _flag("indices_are_sorted"),
    _flag("unique_indices"),
    _word("direction", "comparison_direction"),
    _word("type", "comparison_type"),
    _number("exponent_bits"),
    _number("mantissa_bits"),
    _enumeration("fft_type", "fft_type", "FftType"),
    _numbers("fft_length"),
    _row("epsilon", "epsilon", lambda value: f"{value:.9g}", float, 0.0),
    _number("feature_index"),
    _flag("is_stable"),
    _flag("is_reverse"),
    _number("num_carries"),
    _row("is_associative", "is_associative", _TRUTHS.get, _read_truth),
    _number("k"),
    _flag("largest"),
    _number("delta"),
    _enumeration("distribution", "distribution", "RandomDistribution", lower=True),
    TextAttribute(
        "operand_precision", _show_precisions, _read_precisions, parts=("precision_config",)
    ),
    TextAttribute(
        "algorithm", _show_algorithm, _read_algorithm, parts=("precision_config", "rng_algorithm")
    ),
    _row("result_accuracy", "result_accuracy", show_accuracy, read_accuracy),
    _part("left_side", *_SOLVE, "left_side"),
    _part("lower", *_SOLVE, "lower", never="cholesky"),
    _part("lower", "cholesky_options", "CholeskyOptions", "lower", only="cholesky"),
    _part("unit_diagonal", *_SOLVE, "unit_diagonal"),
    _part("transpose_a", *_SOLVE, "transpose_a"),
    _number("channel_id"),
    TextAttribute(
        "replica_groups", _show_replica_groups, _read_replica_groups, parts=_REPLICA_GROUPS
    ),
    _row("source_target_pairs", "source_target_pairs", show_pairs, read_pairs, ()),
    _flag("constrain_layout", never="custom-call"),
    _flag("use_global_device_ids"),
    _flag("is_host_transfer"),
    _flag("is_composite"),
    _quoted("custom_call_target"),
    TextAttribute(
        "operand_layout_constraints", _show_constraints, _read_constraints, parts=_CONSTRAINTS
    ),
    _flag("custom_call_has_side_effect"),
    _row("output_to_operand_aliasing", "output_operand_aliasing", show_aliases, read_aliases, ()),
    _enumeration("schedule", "custom_call_schedule", "CustomCallSchedule"),
    _enumeration(
        "api_version",
        "custom_call_api_version",
        "CustomCallApiVersion",
        empty="API_VERSION_ORIGINAL",
    ),
    _enumeration("padding_type", "padding_type", "PaddingType"),
    _word("kind", "fusion_kind"),
    _quoted("async_execution_thread"),
    _row("outfeed_config", "outfeed_config", quote, string_bytes, b""),
    _row("infeed_config", "infeed_config", quote, string_bytes, b""),
    _row("outfeed_shape", "outfeed_shape", show_shape, parse_shape),
    _row("parameter_replication", "parameter_replication", show_leaves, read_leaves),
    _row("sharding", "sharding", show_sharding, parse_sharding),
    _row("frontend_attributes", "frontend_attributes", show_frontend, read_frontend),
    _row("backend_config", "backend_config", show_config, read_config, b""),
)

ATTRIBUTES: tuple[TextAttribute, ...] = _ROWS


def _by_name() -> dict[str, list[TextAttribute]]:
    found: dict[str, list[TextAttribute]] = {}
    for row in _ROWS:
        found.setdefault(row.name, []).append(row)
    return found


BY_NAME: dict[str, list[TextAttribute]] = _by_name()
"""The rows of each name: more than one where it means different fields of different opcodes."""
