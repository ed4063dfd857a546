"""The error codes that the SDK documents for neuronx-cc, `NCC_<code>`, and when we raise them.

One row a code. Most are found by a check of `admission`; rows with `same` name errors of our
catalogue that mean the same, which keep their own text; rows with `never` say why what they are
for cannot happen here. Source of the codes: compiler/error-codes of the SDK's documentation, one
page each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from isa.errors import NeuronError


@dataclass(frozen=True, slots=True)
class DocumentedCode:
    """One code: what is wrong in few words, and the way out. `same`: codes of our catalogue.
    `never`: of a code that is not raised, why not."""

    code: str
    title: str
    hint: str = ""
    same: tuple[str, ...] = ()
    never: str = ""


_LIST = "`neuronx-cc list-operators --framework XLA` lists operators that have a form."
_FLOATS = "Convert its operands to a type of floats."
_SMALLER = "Make the batch or the tensors smaller, or divide the model over several devices."

_LIMITLESS = (
    "A program is a stream that the engines fetch from HBM while they run, so that no number of "
    "instructions is too large by itself. What it takes in HBM counts for NCC_EOOM001, and the "
    "instructions that calls repeat are counted before any are made, for NCC_EVRF007."
)
_CONFIGURE = "Write the configuration as the page of the code shows it."

_ROWS = (
    DocumentedCode("EARG001", "Logical core that the target has not", "Compile with --lnc 1."),
    DocumentedCode("EBIR023", "Hidden dimension of a fused MLP beyond 4,096", never=(
        "It is a limit of one kernel that the vendor's compiler puts in place of two products. "
        "Here no such kernel is put in: products are cut into tiles, whatever their dimensions."
    )),
    DocumentedCode("EBVF030", "Instructions beyond the limit of the back end", never=_LIMITLESS),
    DocumentedCode("EHCA005", "Custom call that is not known", "Use a target that is documented."),
    DocumentedCode("EMOD025", "Dynamic shape", "Trace the model with static shapes."),
    DocumentedCode("EOOM001", "Program beyond the memory", _SMALLER, ("hbm-overflow",)),
    DocumentedCode("EOOM002", "Values, parameters and results beyond the memory", _SMALLER),
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
    DocumentedCode("EVRF007", "More instructions than are compiled",
                   "Call from a `while`, or divide the graph.",
                   ("hlo-too-many-instructions", "loop-limit")),
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
    DocumentedCode("EVRF036", "QuantizeMX without a configuration", _CONFIGURE),
    DocumentedCode("EVRF037", "QuantizeMX of other than one operand", "Pass one array."),
    DocumentedCode("EVRF038", "QuantizeMX along another than the last two dimensions",
                   "Use dim -1 or -2."),
    DocumentedCode("EVRF039", "QuantizeMX with blocks of another size", "Use block_size 32."),
    DocumentedCode("EVRF040", "QuantizeMX with another way to find scales", "Use EMAX."),
    DocumentedCode("EVRF041", "QuantizeMX of a type that it does not take",
                   "Convert to bf16 or f16 first."),
    DocumentedCode("EVRF042", "QuantizeMX with data of another form",
                   "State a dtype, and data of u32 with a quarter of the elements."),
    DocumentedCode("EVRF043", "Scaled product of other than four operands",
                   "Pass both arrays, then both scales."),
    DocumentedCode("EVRF044", "Scaled product of data that are not packed",
                   "Pass what QuantizeMX gives."),
    DocumentedCode("EVRF045", "Scaled product with another type of result", "Use f32 or bf16."),
    DocumentedCode("EVRF046", "Scaled product whose left operand is no matrix", "Reshape it."),
    DocumentedCode("EVRF047", "Scaled product whose right operand is no matrix", "Reshape it."),
    DocumentedCode("EVRF048", "Scaled product of different batches", "Make them equal."),
    DocumentedCode("EVRF049", "Scaled product with a configuration that cannot be read",
                   _CONFIGURE),
    DocumentedCode("EVRF050", "Scaled product of different depths", "Make them equal."),
    DocumentedCode("EVRF051", "f8e4m3fn before trn3", "Use f8e4m3, or "
                   "--experimental-unsafe-fp8e4m3fn-as-fp8e4m3."),
    DocumentedCode("EVRF052", "f8e4m3 behind trn3", never=(
        "It is about generations that come after trn3, of which nothing is published to compile "
        "for. All targets here have f8e4m3."
    )),
    DocumentedCode("EVRF053", "Scaled product that contracts a batch dimension",
                   "Name a dimension once."),
    DocumentedCode("EVRF054", "Scaled product with a batch dimension that is not there",
                   "Count dimensions from 0 to below the rank."),
    DocumentedCode("EVRF055", "Scaled product with a contracted dimension that is not there",
                   "Count dimensions from 0 to below the rank."),
    DocumentedCode("EVRF056", "Gather outside of its operand", "Make the iota no longer."),
    DocumentedCode("EVRF057", "QuantizeMX that does not give two arrays",
                   "State a tuple of data and scales."),
    DocumentedCode("EVRF058", "QuantizeMX along a dimension that four does not divide", "Pad it."),
    DocumentedCode("EVRF059", "Kernel whose file is missing",
                   "Trace the model again, or copy the file's folder into the current one."),
    DocumentedCode("EVRF060", "Scatter that computes with integers",
                   f"{_FLOATS} Or permit scatter to downcast."),
    DocumentedCode("EVRF061", "All-reduce of integers",
                   f"{_FLOATS} Or permit all_reduce to downcast."),
    DocumentedCode("EVRF062", "Power of 64-bit integers", "Use s32, or permit pow to downcast."),
    DocumentedCode("EVRF063", "Reduce-scatter of integers",
                   f"{_FLOATS} Or permit reduce_scatter to downcast."),
    DocumentedCode("EVRF064", "Graph that breaks the rules of shapes", "",
                   ("hlo-shape-mismatch", "hlo-type-mismatch", "hlo-invalid", "hlo-cycle")),
    DocumentedCode("EVRF065", "Kernel that does not say which version traced it",
                   "Trace the model again with a current NKI."),
    DocumentedCode("EXSP001", "Values beyond the memory", _SMALLER),
    DocumentedCode("EXTP004", "Instructions beyond the limit of tiling", never=_LIMITLESS),
)  # fmt: skip

DOCUMENTED: dict[str, DocumentedCode] = {row.code: row for row in _ROWS}
"""Every code that is documented."""

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
