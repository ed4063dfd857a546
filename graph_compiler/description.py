"""What a graph consists of, for people and programs (`nki hlo info`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from graph_compiler.hlo.cost import work_of
from graph_compiler.partitions import undivided

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Module
    from graph_compiler.hlo.types import Shape


def describe(module: Module) -> dict[str, Any]:
    """The facts of a module, under stable names and as values that JSON can hold.

    `parameters` and `results`: name, shape, bytes. `opcodes`: how often each occurs, most often
    first. `aliases`: which output takes the memory of which parameter. `flops`,
    `transcendentals`: see `graph_compiler.hlo.cost`. Raises NeuronError hlo-cycle,
    hlo-unknown-opcode, hlo-not-supported.

    >>> from graph_compiler import parse_text
    >>> module = parse_text("HloModule m\\nENTRY e { ROOT x = s32[4] parameter(0) }")
    >>> describe(module)["parameters"]
    [{'name': 'x', 'shape': 's32[4]', 'bytes': 16}]
    """
    work = work_of(module)
    instructions = list(module.instructions())
    constants = [item for item in instructions if "literal" in item.attributes]
    result = module.result_shape
    parts = result.tuple_shapes if result.is_tuple else (result,)
    parameters = [_value(item.name, item.shape) for item in module.parameters]
    results = [_value(str(number), shape) for number, shape in enumerate(parts)]
    return {
        "name": module.name,
        "computations": len(module.computations),
        "instructions": len(instructions),
        "parameter_bytes": sum(row["bytes"] for row in parameters),
        "result_bytes": result.bytes,
        "constant_bytes": sum(item.shape.bytes for item in constants),
        "flops": work.flops,
        "transcendentals": work.transcendentals,
        "parameters": parameters,
        "results": results,
        "aliases": _aliases(module),
        "opcodes": _counted(item.opcode for item in instructions),
        "element_types": _counted(
            shape.element_type for item in instructions for shape in item.shape.leaves()
        ),
        "custom_calls": _counted(
            item.attribute("custom_call_target")
            for item in instructions
            if item.attributes.get("custom_call_target")
        ),
        "channels": len({item.attributes.get("channel_id") or 0 for item in instructions} - {0}),
    }


def _value(name: str, shape: Shape) -> dict[str, Any]:
    return {"name": name, "shape": str(shape.plain()), "bytes": shape.bytes}


def _counted(names: Iterable[str]) -> dict[str, int]:
    """How often each name occurs; most often first, then by name."""
    found = Counter(names)
    return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


def _aliases(module: Module) -> list[dict[str, Any]]:
    record = module.attributes.get("input_output_alias")
    return [
        {
            "output": list(entry.output_shape_index),
            "parameter": entry.parameter_number,
            "component": list(entry.parameter_shape_index),
            "kind": str(entry.kind).removesuffix("_ALIAS").lower(),
        }
        for entry in (() if record is None else record.entries)
    ]


def remarks(module: Module) -> list[str]:
    """What stands in the way of running a graph that is right in itself, or is of no use in it.

    >>> from graph_compiler import parse_text
    >>> text = "HloModule m\\nENTRY e {\\n x = f32[] parameter(0)\\n y = f32[] negate(x)\\n"
    >>> remarks(parse_text(text + " ROOT z = f32[] abs(x)\\n}"))
    ['Not used in `e`: negate `y`.']
    """
    return [*_unknown_targets(module), *_unused(module), *_divided(module)]


def _unknown_targets(module: Module) -> Iterator[str]:
    from graph_compiler.hlo.operators import CUSTOM_CALLS

    targets = _counted(
        item.attribute("custom_call_target")
        for item in module.instructions()
        if item.attributes.get("custom_call_target")
    )
    for target, count in targets.items():
        if target not in CUSTOM_CALLS:
            yield f"No meaning is known of the custom-call target {target!r} (calls: {count})."


def _unused(module: Module) -> Iterator[str]:
    """Per computation, what neither its root nor an effect needs."""
    for computation in module.computations:
        used = {id(item) for item in (computation.root, *computation.parameters)}
        for item in reversed(computation.instructions):
            effect = item.attributes.get("custom_call_has_side_effect") or "channel_id" in (
                item.attributes
            )
            if id(item) in used or effect:
                needed = (item, *item.operands, *item.control_predecessors)
                used.update(id(other) for other in needed)
        unused = [item for item in computation.instructions if id(item) not in used]
        if unused:
            shown = ", ".join(f"{item.opcode} `{item.name}`" for item in unused[:_FEW])
            more = f" and {len(unused) - _FEW} more" if len(unused) > _FEW else ""
            yield f"Not used in `{computation.name}`: {shown}{more}."


_FEW = 3
"""Instructions that a remark names."""


def _divided(module: Module) -> Iterator[str]:
    if count := sum(1 for _ in undivided(module)):
        yield (
            f"{count} values are to be divided over ranks, and there is no partitioner: the graph "
            "runs on one rank."
        )
