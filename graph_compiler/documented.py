"""The error codes that the SDK documents for neuronx-cc, `NCC_<code>`, and when we raise them.

One row a code that is raised. Most are found by a check of `admission`; rows with `same` name
errors of our catalogue that mean the same, which keep their own text. Source of the codes:
compiler/error-codes of the SDK's documentation, one page each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from isa.errors import NeuronError


@dataclass(frozen=True, slots=True)
class DocumentedCode:
    """One code: what is wrong in few words, and the way out. `same`: codes of our catalogue."""

    code: str
    title: str
    hint: str = ""
    same: tuple[str, ...] = ()


_LIST = "`neuronx-cc list-operators --framework XLA` lists operators that have a form."
_FLOATS = "Convert its operands to a type of floats."
_SMALLER = "Make the batch or the tensors smaller, or divide the model over several devices."

_ROWS = (
    DocumentedCode("EARG001", "Logical core that the target has not", "Compile with --lnc 1."),
    DocumentedCode("EMOD025", "Dynamic shape", "Trace the model with static shapes."),
    DocumentedCode("EOOM001", "Program beyond the memory", _SMALLER, ("hbm-overflow",)),
    DocumentedCode("EVRF009", "Tensors of the graph beyond the memory", _SMALLER),
    DocumentedCode("ESFH002", "64-bit constant beyond 32 bits", "Use constants of 32 bits."),
    DocumentedCode("ESPP004", "Type without instructions", "Convert to a type of the device."),
    DocumentedCode("ESPP047", "Type of 8-bit floats that the device has not", "Use f8e4m3."),
    DocumentedCode("EUOC002", "Operation without a form", _LIST, ("hlo-not-compiled",)),
    DocumentedCode("EVRF001", "Operator without a form", _LIST,
                   ("hlo-unknown-opcode", "hlo-not-supported")),
    DocumentedCode("EVRF004", "Complex numbers", "State real and imaginary parts apart."),
    DocumentedCode("EVRF005", "Floats of 8 bits without signed zero", "Use f8e4m3 or f8e5m2."),
    DocumentedCode("EVRF006", "Algorithm of random bits", "Use RNG_DEFAULT."),
    DocumentedCode("EVRF010", "Convolution dilated on both sides", "Dilate one side only."),
    DocumentedCode("EVRF011", "Strided convolution of a dilated input", "Do one after the other."),
    DocumentedCode("EVRF013", "TopK of integers", _FLOATS),
    DocumentedCode("EVRF015", "Unknown custom call", "Use a target that is documented."),
    DocumentedCode("EVRF016", "Scatter that computes with small integers or preds", _FLOATS),
    DocumentedCode("EVRF017", "Windows of a dilated operand", "Pad the operand inside instead."),
    DocumentedCode("EVRF018", "Dilated windows", "Take slices of the operand instead."),
    DocumentedCode("EVRF019", "Windows of several operands", "Reduce one operand at a time."),
    DocumentedCode("EVRF022", "Arithmetic shift of other than 32 bits", "Convert to s32 first."),
    DocumentedCode("EVRF031", "Scatter outside of its operand", "Make the iota no longer."),
    DocumentedCode("EVRF035", "Product of integers", f"{_FLOATS} Or permit dot to downcast."),
    DocumentedCode("EVRF051", "f8e4m3fn before trn3", "Use f8e4m3, or "
                   "--experimental-unsafe-fp8e4m3fn-as-fp8e4m3."),
    DocumentedCode("EVRF056", "Gather outside of its operand", "Make the iota no longer."),
    DocumentedCode("EVRF060", "Scatter that computes with integers",
                   f"{_FLOATS} Or permit scatter to downcast."),
    DocumentedCode("EVRF061", "All-reduce of integers",
                   f"{_FLOATS} Or permit all_reduce to downcast."),
    DocumentedCode("EVRF062", "Power of 64-bit integers", "Use s32, or permit pow to downcast."),
    DocumentedCode("EVRF063", "Reduce-scatter of integers",
                   f"{_FLOATS} Or permit reduce_scatter to downcast."),
    DocumentedCode("EVRF064", "Graph that breaks the rules of shapes", "",
                   ("hlo-shape-mismatch", "hlo-type-mismatch", "hlo-invalid", "hlo-cycle")),
)  # fmt: skip

DOCUMENTED: dict[str, DocumentedCode] = {row.code: row for row in _ROWS}
"""Every code that is raised."""

_SAME = {name: row.code for row in _ROWS for name in row.same}
_CODE = re.compile(r"NCC_([A-Z]+\d{3}): ")


def refusal(code: str, what: str) -> NeuronError:
    """The error of a documented code, whose text begins with it.

    >>> refusal("EARG001", "trn1 has no pairs.").what
    'NCC_EARG001: trn1 has no pairs.'
    """
    row = DOCUMENTED[code]
    return NeuronError("documented-refusal", f"NCC_{code}: {what}", why=row.title, hint=row.hint)


def documented_code(error: NeuronError) -> str | None:
    """The documented code that an error has, or means; None where the SDK documents none.

    >>> documented_code(NeuronError("hbm-overflow", "m has 2^40 B"))
    'EOOM001'
    """
    stated = _CODE.match(error.what)
    return stated[1] if stated else _SAME.get(error.code)
