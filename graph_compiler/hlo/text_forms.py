"""Values of attributes in HLO text: windows, padding, slices, labels, aliases, metadata.

Each pair of functions shows a value of the graph and reads it; reading raises ValueError.
"""

from __future__ import annotations

import re
from typing import Any

from graph_compiler.hlo.record import Record, check_numbers, fields_of
from graph_compiler.hlo.text_scan import (
    boolean,
    inside,
    integer,
    integers,
    is_braced,
    is_string,
    quote,
    split,
    string,
    string_bytes,
)

_KEY = re.compile(r"[A-Za-z_][\w.-]*")


def joined(numbers: Any) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def show_slices(slices: Any) -> str:
    parts = []
    for row in slices:
        stride = f":{row.stride}" if row.stride != 1 else ""
        parts.append(f"[{row.start}:{row.limit}{stride}]")
    return "{" + ", ".join(parts) + "}"


def read_slices(text: str) -> Any:
    rows = []
    for part in split(inside(text)):
        numbers = [integer(number) for number in inside(part, "[]").split(":")]
        if len(numbers) not in (2, 3):
            raise ValueError(f"[start:limit:stride] expected, found {part[:40]!r}")
        stated = zip(("start", "limit", "stride"), [*numbers, 1][:3])
        rows.append(Record("SliceDimensions", **{name: value for name, value in stated if value}))
    return tuple(rows)


def show_padding(config: Any) -> str:
    parts = []
    for row in config.dimensions:
        interior = f"_{row.interior_padding}" if row.interior_padding else ""
        parts.append(f"{row.edge_padding_low}_{row.edge_padding_high}{interior}")
    return "x".join(parts)


def read_padding(text: str) -> Record:
    rows = []
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    for part in text.split("x") if text else ():
        numbers = [integer(number) for number in part.split("_")]
        if len(numbers) not in (2, 3):
            raise ValueError(f"low_high_interior expected, found {part[:40]!r}")
        stated = {name: value for name, value in zip(names, numbers) if value}
        rows.append(Record("PaddingConfigDimension", **stated))
    return Record("PaddingConfig", **({"dimensions": tuple(rows)} if rows else {}))


_WINDOW = (
    ("size", ("size",), None),
    ("stride", ("stride",), 1),
    ("pad", ("padding_low", "padding_high"), 0),
    ("lhs_dilate", ("base_dilation",), 1),
    ("rhs_dilate", ("window_dilation",), 1),
    ("rhs_reversal", ("window_reversal",), False),
)
"""Words of a window: name, fields, and the value of which a word that says no more is left out."""


def show_window(window: Any) -> str:
    rows = window.dimensions
    words = []
    for name, fields, absent in _WINDOW:
        values = [[getattr(row, field) for field in fields] for row in rows]
        if rows and any(value != absent for row in values for value in row):
            shown = ["_".join(str(int(value)) for value in row) for row in values]
            words.append(f"{name}={'x'.join(shown)}")
    return "{" + " ".join(words) + "}"


def read_window(text: str) -> Record:
    stated: dict[str, list[list[int]]] = {}
    for word in inside(text).split():
        name, _, value = word.partition("=")
        stated[name] = [[integer(part) for part in row.split("_")] for row in value.split("x")]
    if unknown := set(stated) - {name for name, _, _ in _WINDOW}:
        raise ValueError(f"a window has no {unknown.pop()!r}")
    count = max((len(rows) for rows in stated.values()), default=0)
    records = [Record("WindowDimension") for _ in range(count)]
    for name, fields, absent in _WINDOW:
        rows = stated.get(name)
        if rows is None:
            rows = [[1 if absent is None else int(absent)] * len(fields)] * count
        if len(rows) != count or any(len(row) != len(fields) for row in rows):
            raise ValueError(f"{name} of the window has not {count} dimensions")
        for record, row in zip(records, rows):
            for field, number in zip(fields, row):
                if number:
                    record.values[field] = bool(number) if absent is False else number
    return Record("Window", **({"dimensions": tuple(records)} if records else {}))


_LABELS = (
    ("b", "input_batch_dimension", "f", "input_feature_dimension", "input_spatial_dimensions"),
    (
        "i",
        "kernel_input_feature_dimension",
        "o",
        "kernel_output_feature_dimension",
        "kernel_spatial_dimensions",
    ),
    ("b", "output_batch_dimension", "f", "output_feature_dimension", "output_spatial_dimensions"),
)


def show_labels(numbers: Any) -> str | None:
    shown = []
    for first, first_field, second, second_field, spatial_field in _LABELS:
        spatial = getattr(numbers, spatial_field)
        labels: list[str] = [""] * (len(spatial) + 2)
        places = {getattr(numbers, first_field): first, getattr(numbers, second_field): second}
        places |= {place: str(label) for label, place in enumerate(spatial)}
        if len(spatial) > 10 or sorted(places) != list(range(len(labels))):
            return None
        shown.append("".join(places[place] for place in range(len(labels))))
    return f"{shown[0]}_{shown[1]}->{shown[2]}"


def read_labels(text: str) -> Record:
    found = re.fullmatch(r"([\dbf]+)_([\dio]+)->([\dbf]+)", text)
    if found is None:
        raise ValueError(f"dimension labels expected, found {text[:40]!r}")
    record = Record("ConvolutionDimensionNumbers")
    for labels, row in zip(found.groups(), _LABELS):
        first, first_field, second, second_field, spatial_field = row
        wanted = {first, second} | {str(label) for label in range(len(labels) - 2)}
        if len(labels) < 2 or set(labels) != wanted or len(set(labels)) != len(labels):
            raise ValueError(f"the dimension labels {text} are no numbering")
        for field, label in ((first_field, first), (second_field, second)):
            if labels.index(label):
                record.values[field] = labels.index(label)
        spatial = tuple(labels.index(str(label)) for label in range(len(labels) - 2))
        if spatial:
            record.values[spatial_field] = spatial
    return record


def show_accuracy(accuracy: Any) -> str | None:
    if accuracy.tolerance is not None:
        rows = ((name, getattr(accuracy.tolerance, name)) for name in ("atol", "rtol", "ulps"))
        shown = ",".join(f"{name}={value!r}" for name, value in rows)
        return "{tolerance={" + shown + "}}"
    if "mode" in accuracy.values:
        return "{mode=" + str(accuracy.mode).lower() + "}"
    return None


def read_accuracy(text: str) -> Record:
    name, _, value = inside(text).partition("=")
    if name.strip() == "mode":
        return Record("ResultAccuracy", mode=value.strip().upper())
    rows = dict(part.split("=", 1) for part in split(inside(value)))
    tolerance = Record("Tolerance")
    for row, number in rows.items():
        if row.strip() not in ("atol", "rtol", "ulps"):
            raise ValueError(f"a tolerance has no {row[:40]!r}")
        parsed = integer(number) if row.strip() == "ulps" else float(number)
        if parsed:
            tolerance.values[row.strip()] = parsed
    return Record("ResultAccuracy", tolerance=tolerance)


def show_pairs(pairs: Any) -> str:
    return "{" + ",".join(f"{{{pair.source},{pair.target}}}" for pair in pairs) + "}"


def read_pairs(text: str) -> Any:
    rows = []
    for part in split(inside(text)):
        numbers = integers(part)
        if len(numbers) != 2:
            raise ValueError(f"{{source,target}} expected, found {part[:40]!r}")
        stated = zip(("source", "target"), numbers)
        rows.append(Record("SourceTarget", **{name: value for name, value in stated if value}))
    return tuple(rows)


def show_aliases(rows: Any) -> str:
    return shown_list(
        f"{index(row.output_shape_index)}: ({row.operand_index}, {index(row.operand_shape_index)})"
        for row in rows
    )


def shown_list(parts: Any) -> str:
    return "{" + ", ".join(parts) + "}"


def index(numbers: Any) -> str:
    return "{" + ", ".join(map(str, numbers)) + "}"


def read_aliases(text: str) -> Any:
    rows = []
    for part in split(inside(text)):
        output, _, operand = part.partition(":")
        number, *rest = split(inside(operand, "()"))
        record = Record("OutputOperandAliasing")
        stated = (
            ("output_shape_index", integers(output)),
            ("operand_index", integer(number)),
            ("operand_shape_index", integers(rest[0]) if rest else ()),
        )
        record.values.update((name, value) for name, value in stated if value)
        rows.append(record)
    return tuple(rows)


def show_frontend(record: Any) -> str | None:
    if not record.map:
        return None
    parts = (
        (key if _KEY.fullmatch(key) else quote(key))
        + "="
        + (value if is_braced(value) else quote(value))
        for key, value in record.map.items()
    )
    return "{" + ",".join(parts) + "}"


def read_frontend(text: str) -> Record:
    values = {}
    for part in split(inside(text)):
        if part.startswith('"'):
            found = re.match(r'("(?:[^"\\]|\\.)*")=', part)
            if found is None:
                raise ValueError(f"name=value expected, found {part[:40]!r}")
            key, value = string(found.group(1)), part[found.end() :]
        else:
            key, equals, value = part.partition("=")
            if not equals:
                raise ValueError(f"name=value expected, found {part[:40]!r}")
        values[key.strip()] = string(value) if is_string(value) else value
    return Record("FrontendAttributes", **({"map": values} if values else {}))


_METADATA = re.compile(r'\s*(\w+)=("(?:[^"\\]|\\.)*"|[^\s,"{}]+|\{[^{}]*\})[,\s]*')


def show_metadata(record: Record) -> str:
    """Metadata as text; fields without a place in it are left out."""
    words = []
    for name, value in record.values.items():
        if isinstance(value, str):
            words.append(f"{name}={quote(value)}")
        elif isinstance(value, int) and name != "profile_type":
            words.append(f"{name}={value}")
    return "{" + " ".join(words) + "}"


def read_metadata(text: str) -> Record:
    content = inside(text)
    fields = fields_of("OpMetadata")
    record = Record("OpMetadata")
    position = 0
    while position < len(content):
        found = _METADATA.match(content, position)
        if found is None:
            raise ValueError(f"name=value expected, found {content[position : position + 40]!r}")
        position = found.end()
        name, value = found.groups()
        field = fields.get(name)
        if field is None or field.repeated:
            continue  # Profiles and annotations of a back end that say nothing of the graph.
        record.values[name] = string(value) if field.type == "string" else integer(value)
    check_numbers("OpMetadata", record.values)
    return record


def show_config(value: Any) -> str:
    try:
        text = value.decode("ascii")
    except UnicodeDecodeError:
        return quote(value)
    return text if is_braced(text) else quote(value)


def read_config(text: str) -> bytes:
    return string_bytes(text) if is_string(text) else text.encode()


def show_leaves(record: Any) -> str:
    return joined(str(flag).lower() for flag in record.replicated_at_leaf_buffers)


def read_leaves(text: str) -> Record:
    flags = tuple(boolean(part) for part in split(inside(text)))
    return Record("ParameterReplication", replicated_at_leaf_buffers=flags)
