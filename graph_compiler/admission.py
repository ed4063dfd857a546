"""Checks of a graph before it is compiled: what the SDK documents that the compiler refuses.

A row of `CHECKS` looks at instructions of some opcodes, or of all, and says what is wrong. Rows
that are `limits` state what the vendor's compiler has no implementation of, or what the scheduler
here refuses in its own words; they count with `GraphOptions.documented_limits`. Sources: the page
of each code, compiler/error-codes of the SDK's documentation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graph_compiler.documented import refusal
from graph_compiler.hlo.operators.custom import CUSTOM_CALLS
from graph_compiler.hlo.operators.row import subject
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.kernels import VERSION, binary_path, is_unversioned, places_of_binary
from graph_compiler.options import has_e4m3fn
from graph_compiler.scaled_calls import RULES
from graph_compiler.schedule.simplify import forms
from nki.verification.hbm_capacity import room_of

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction, Module
    from graph_compiler.hlo.types import Shape
    from graph_compiler.options import GraphOptions
    from isa.errors import NeuronError
    from isa.target import Target
    from nki.ir.nodes import TracedKernel


@dataclass(frozen=True, slots=True)
class Setting:
    """What a check may depend on besides the instruction."""

    target: Target
    options: GraphOptions

    def permits(self, operation: str) -> bool:
        return operation in self.options.implicit_integer_downcast


Checker = Callable[["Instruction", Setting], str]
"""What is wrong with an instruction, "" for nothing."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `opcodes`: those that it looks at, empty for all."""

    code: str
    check: Checker
    opcodes: frozenset[str] = frozenset()
    limit: bool = False


DOCUMENTED_TARGETS = frozenset(
    {
        *("AwsNeuronErf", "AwsNeuronGelu", "AwsNeuronGeluApprxTanh", "AwsNeuronGeluBackward"),
        *("AwsNeuronSilu", "AwsNeuronSiluBackward", "AwsNeuronRmsNorm", "AwsNeuronSoftmax"),
        *("AwsNeuronSoftmaxBackward", "AwsNeuronCollectiveMatmul", "AwsNeuronIntMatmult"),
        *("AwsNeuronArgMax", "AwsNeuronArgMin", "AwsNeuronTopK", "AwsNeuronDropoutMaskV1"),
        *("AwsNeuronCustomNativeKernel", "AwsNeuronCustomOp", "AwsNeuronDevicePrint"),
        *("ResizeNearest", "ResizeBilinear", "ResizeNearestGrad"),
        *("QuantizeMX", "__op$block_scaled_dot"),
    }
)
"""Targets of custom calls that the SDK names (EVRF015.rst, EVRF036.rst, EVRF043.rst)."""


def _rule(target: str, rule: Callable[[Instruction], str]) -> Checker:
    """A check of the calls of one target."""

    def check(item: Instruction, setting: Setting) -> str:
        return rule(item) if item.attribute("custom_call_target") == target else ""

    return check


_GEN3 = 3
"""Generation from which products of s32 are refused (EVRF035.rst)."""

_WIDE_INTEGERS = frozenset({"s32", "u32", "s64", "u64"})
_INTEGERS_64 = frozenset({"s64", "u64"})
_NO_SIGNED_ZERO = frozenset({"f8e4m3fnuz", "f8e4m3b11fnuz", "f8e5m2fnuz"})
_OTHER_FLOATS_8 = frozenset({"f8e3m4"})


def _types(shape: Shape) -> set[str]:
    if shape.is_array:
        return {shape.element_type}
    return {type for type, _ in forms(shape)}


def _has(*kinds: Callable[[str], bool]) -> Checker:
    """A check that no result has a type of some kind."""

    def check(item: Instruction, setting: Setting) -> str:
        found = sorted(t for t in _types(item.shape) if any(kind(t) for kind in kinds))
        return f"it has type {found[0]}." if found else ""

    return check


def _without_instructions(type: str) -> bool:
    row = PRIMITIVE_TYPES[type]
    known = _NO_SIGNED_ZERO | _OTHER_FLOATS_8 | _INTEGERS_64
    return row.dtype is None and not row.is_complex and type not in known


def _float8(item: Instruction, setting: Setting) -> str:
    if has_e4m3fn(setting.target) or setting.options.emulate_fp8_e4m3fn:
        return ""
    found = any("f8e4m3fn" in _types(value.shape) for value in (item, *item.operands))
    return f"{setting.target.name} has no f8e4m3fn." if found else ""


def _large_constant(item: Instruction, setting: Setting) -> str:
    value = item.attributes.get("literal")
    if item.shape.is_tuple or item.shape.element_type != "u64" or value is None:
        return ""
    most = int(np.max(value, initial=0))
    return f"it holds {most}, which 32 bits do not." if most >= 1 << 32 else ""


def _algorithm(item: Instruction, setting: Setting) -> str:
    name = item.attribute("rng_algorithm")
    return f"its algorithm is {name}." if name not in ("", "RNG_DEFAULT") else ""


def _dilated_twice(item: Instruction, setting: Setting) -> str:
    parts = item.attribute("window").dimensions
    both = any((p.base_dilation or 1) > 1 for p in parts) and any(
        (p.window_dilation or 1) > 1 for p in parts
    )
    return "both its input and its kernel are dilated." if both else ""


def _strided_of_dilated(item: Instruction, setting: Setting) -> str:
    parts = item.attribute("window").dimensions
    both = any((p.base_dilation or 1) > 1 for p in parts) and any(p.stride > 1 for p in parts)
    return "it is strided, and its input dilated." if both else ""


def _window(field: str, what: str) -> Checker:
    def check(item: Instruction, setting: Setting) -> str:
        sizes = [getattr(part, field) or 1 for part in item.attribute("window").dimensions]
        return f"its {what} are dilated by {max(sizes)}." if max(sizes, default=1) > 1 else ""

    return check


def _several(item: Instruction, setting: Setting) -> str:
    return f"it has {len(item.operands)} operands." if len(item.operands) != 2 else ""


def _integer_top(item: Instruction, setting: Setting) -> str:
    type = item.operands[0].shape.element_type
    return f"it takes {type}." if type in ("s32", "s64") else ""


def _unknown_target(item: Instruction, setting: Setting) -> str:
    target = item.attribute("custom_call_target")
    return "" if is_known_target(target) else f"the target {target!r} is not known."


def is_known_target(target: str) -> bool:
    """Whether the SDK names a target of custom calls, or it has a meaning here."""
    return target in DOCUMENTED_TARGETS or target in CUSTOM_CALLS


def _computes(item: Instruction) -> bool:
    return bool(item.called) and item.called[0].root.opcode != _PARAMETER


_PARAMETER = "parameter"


def _small_scatter(item: Instruction, setting: Setting) -> str:
    type = item.operands[0].shape.element_type
    row = PRIMITIVE_TYPES[type]
    small = row.kind == "boolean" or (row.is_integer and row.bits < 32)
    return f"it combines elements of {type}." if small and _computes(item) else ""


def _shift(item: Instruction, setting: Setting) -> str:
    row = item.operands[0].shape.primitive
    return f"its first operand is {row.name}." if row.bits != 32 else ""


def _outside(item: Instruction, setting: Setting) -> str:
    """Indices that are a count beyond the only dimension that they index."""
    operand, indices = item.operands[:2]
    numbers = item.attribute(_NUMBERS[item.opcode][0])
    dimensions = getattr(numbers, _NUMBERS[item.opcode][1])
    if len(dimensions) != 1:
        return ""
    while indices.opcode in _SAME_NUMBERS:
        indices = indices.operands[0]
    if indices.opcode != _IOTA:
        return ""
    count = indices.shape.dimensions[indices.attribute("dimensions")[0]]
    size = operand.shape.dimensions[dimensions[0]]
    return f"its indices count up to {count}, the dimension has {size}." if count > size else ""


_IOTA = "iota"
_SAME_NUMBERS = frozenset({"reshape", "broadcast", "convert", "copy", "bitcast"})
_NUMBERS = {
    "gather": ("gather_dimension_numbers", "start_index_map"),
    "scatter": ("scatter_dimension_numbers", "scatter_dims_to_operand_dims"),
}


def _product(item: Instruction, setting: Setting) -> str:
    types = {operand.shape.element_type for operand in item.operands[:2]}
    refused = _INTEGERS_64 | (_WIDE_INTEGERS if setting.target.generation >= _GEN3 else set())
    found = sorted(types & refused)
    return f"it multiplies {found[0]}." if found and not setting.permits("dot") else ""


def _integers(operation: str, types: frozenset[str] = _WIDE_INTEGERS) -> Checker:
    """A check that an operation has no integers, unless a downcast is permitted."""

    def check(item: Instruction, setting: Setting) -> str:
        found = sorted({o.shape.element_type for o in item.operands if o.shape.is_array} & types)
        return f"it computes with {found[0]}." if found and not setting.permits(operation) else ""

    return check


def _scatter(item: Instruction, setting: Setting) -> str:
    type = item.operands[0].shape.element_type
    refused = type in _WIDE_INTEGERS and _computes(item) and not setting.permits("scatter")
    return f"it combines elements of {type}." if refused else ""


def _opcodes(*names: str) -> frozenset[str]:
    return frozenset(names)


def _missing_kernel(item: Instruction, setting: Setting) -> str:
    path = binary_path(item)
    if not path or any(place.exists() for place in places_of_binary(path)):
        return ""
    return f"there is no kernel file {path!r}."


def _kernel_version(item: Instruction, setting: Setting) -> str:
    return f"its configuration has no {VERSION}." if is_unversioned(item) else ""


_CUSTOM_CALL = _opcodes("custom-call")


CHECKS = (
    Check("EVRF004", _has(lambda t: PRIMITIVE_TYPES[t].is_complex), limit=True),
    Check("EVRF005", _has(_NO_SIGNED_ZERO.__contains__), limit=True),
    Check("ESPP047", _has(_OTHER_FLOATS_8.__contains__), limit=True),
    Check("ESPP004", _has(_without_instructions), limit=True),
    Check("EVRF051", _float8),
    Check("ESFH002", _large_constant, _opcodes("constant"), True),
    Check("EVRF006", _algorithm, _opcodes("rng-bit-generator"), True),
    Check("EVRF010", _dilated_twice, _opcodes("convolution"), True),
    Check("EVRF011", _strided_of_dilated, _opcodes("convolution"), True),
    Check("EVRF013", _integer_top, _opcodes("topk"), True),
    Check("EVRF015", _unknown_target, _opcodes("custom-call"), True),
    Check("EVRF016", _small_scatter, _opcodes("scatter"), True),
    Check("EVRF017", _window("base_dilation", "elements"), _opcodes("reduce-window"), True),
    Check("EVRF018", _window("window_dilation", "windows"), _opcodes("reduce-window"), True),
    Check("EVRF019", _several, _opcodes("reduce-window"), True),
    Check("EVRF022", _shift, _opcodes("shift-right-arithmetic"), True),
    Check("EVRF031", _outside, _opcodes("scatter"), True),
    Check("EVRF056", _outside, _opcodes("gather"), True),
    Check("EVRF035", _product, _opcodes("dot"), True),
    Check("EVRF060", _scatter, _opcodes("scatter"), True),
    Check("EVRF061", _integers("all_reduce"), _opcodes("all-reduce", "all-reduce-start"), True),
    Check("EVRF062", _integers("pow", _INTEGERS_64), _opcodes("power"), True),
    Check("EVRF063", _integers("reduce_scatter"), _opcodes("reduce-scatter"), True),
    Check("EVRF059", _missing_kernel, _CUSTOM_CALL, True),
    Check("EVRF065", _kernel_version, _CUSTOM_CALL, True),
    *(
        Check(code, _rule(target, rule), _CUSTOM_CALL, True)
        for target, rules in RULES.items()
        for code, rule in rules.items()
    ),
)  # fmt: skip
"""In the order in which an instruction is looked at."""


def require_static(module: Module) -> None:
    """Raise NeuronError documented-refusal for dynamic shapes, which no graph that was verified has
    (EMOD025.rst)."""
    for item in module.instructions():
        parts = item.shape.tuple_shapes or (item.shape,)
        if any(any(part.dynamic_dimensions) for part in parts):
            raise refusal("EMOD025", f"{subject(item)}: its shape {item.shape} is not static.")


def findings(module: Module, target: Target, options: GraphOptions) -> Iterator[NeuronError]:
    """Everything that a graph is refused for, the first instruction first."""
    yield from _memory(module, target)
    setting = Setting(target, options)
    checks = [row for row in CHECKS if options.documented_limits or not row.limit]
    for item in module.instructions():
        for row in checks:
            if row.opcodes and item.opcode not in row.opcodes:
                continue
            wrong = row.check(item, setting)
            if wrong:
                line = module.source_of(item)
                where = f" (from {line})" if line else ""
                yield refusal(row.code, f"{subject(item)}{where}: {wrong}")
                if row.opcodes == _CUSTOM_CALL:
                    break  # the rules of a call take for granted what those before them say


def admit(module: Module, target: Target, options: GraphOptions) -> None:
    """Raise the first of a graph's findings: NeuronError documented-refusal."""
    for error in findings(module, target, options):
        raise error


def admit_memory(kernel: TracedKernel, module: Module, target: Target) -> None:
    """Raise documented-refusal for a kernel whose values no memory holds: those that it makes
    itself (EXSP001.rst), or these with parameters, weights and results (EOOM002.rst)."""
    from graph_compiler.storage.arena import local_bytes
    from nki.ir.nodes import bytes_of

    room, own = room_of(target), local_bytes(kernel)
    if own > room:
        what = f"graph `{module.name}`: its values take {own:,} B, the memory has {room:,} B."
        raise refusal("EXSP001", what)
    lasting = [t for t in kernel.tensors if not t.memory.on_chip and t.role in _LASTING]
    total = own + sum(bytes_of(tensor) for tensor in lasting)
    if total > room:
        raise refusal(
            "EOOM002",
            f"graph `{module.name}`: its values, parameters, weights and results take {total:,} B, "
            f"the memory has {room:,} B.",
        )


_LASTING = frozenset({"input", "inout", "output", "constant"})
"""Roles of tensors that have their memory for the whole run."""


def _memory(module: Module, target: Target) -> Iterator[NeuronError]:
    """Parameters and results that no program can hold."""
    room = room_of(target)
    shapes = [*(item.shape for item in module.parameters), module.result_shape]
    total = sum(
        math.prod(dims) * max(8, PRIMITIVE_TYPES[type].bits) // 8
        for shape in shapes
        for type, dims in forms(shape)
    )
    if total > room:
        what = f"parameters and results have {total:,} B, the memory of a core {room:,} B."
        yield refusal("EVRF009", what)
