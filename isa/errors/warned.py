"""The warnings of the catalogue: what runs here and may be a mistake, or be undefined on devices.

They have codes and numbers as errors have (`isa.errors`), from 801 on.
"""

from __future__ import annotations

import warnings
from typing import Any

from isa.errors import CatalogueEntry

_GUIDE = "nki/get-started/nki-language-guide.rst"
_API = "nki/api/nki.isa.rst"

WARNINGS: dict[str, CatalogueEntry] = {
    "number-comparison": CatalogueEntry(
        801,
        "Tensor compared with a number",
        "Python compares objects while the kernel is traced: `==` with a number is false whatever "
        "the tensor holds.",
        "Ask isinstance(x, nl.NkiTensor) first where an argument may be a number or a tensor; "
        "nl.equal(a, b) compares elements.",
        _GUIDE,
    ),
    "transposed-transfer": CatalogueEntry(
        802,
        "Transfer between a shape and its transpose",
        "A transfer takes the elements of both sides in row-major order, as a reshape does; it "
        "does not transpose.",
        "Transpose with nisa.dma_transpose or nl.load_transpose2d. Where the order of elements is "
        "meant, reshape one side to the shape of the other.",
        _API,
    ),
    "nothing-returned": CatalogueEntry(
        803,
        "Kernel without a result",
        "What a kernel computes is seen where it returns a tensor, or writes to an argument.",
        "Return the tensors in HBM that hold the results.",
        _GUIDE,
    ),
    "private-result": CatalogueEntry(
        804,
        "Result in private HBM",
        "Tensors that a kernel returns are allocated in nl.shared_hbm; the vendor's compiler "
        "refuses others.",
        "Allocate the result with buffer=nl.shared_hbm.",
        "nki/migration/index.rst, Output tensors must use nl.shared_hbm",
    ),
    "unwritten-result": CatalogueEntry(
        805,
        "Result with elements that were never written",
        "NKI_UNWRITTEN=allowed lets results pass that hold or depend on data that was never "
        "written: NaN in floats and 4 in integers, as the vendor's simulator has them; on a device "
        "it is anything.",
        "Read no such element, or write all of the tensor and leave NKI_UNWRITTEN out.",
        "nki/guides/nki_simulator.rst, Uninitialized Memory Detection",
    ),
    "shifted-overlap": CatalogueEntry(
        806,
        "Source and destination of one instruction meet elsewhere",
        "An instruction reads its operands while it writes its result. No document says which "
        "comes first where they meet in another order: on a device the result is undefined.",
        "Write to another tile, or to the same elements in the same order.",
        _API,
    ),
    "repeated-destination": CatalogueEntry(
        807,
        "Elements that are all written to one place",
        "A destination of stride 0 has one place for several elements. Which of them stays is "
        "undefined.",
        "Where only a sum beside them is wanted, do not read that place; else give each element "
        "its own.",
        _API,
    ),
    "accumulation-after-read": CatalogueEntry(
        808,
        "Sum in PSUM that is read and then added to",
        "A matmul without accumulate=False adds to what earlier ones left in its region, also when "
        "their sum has been copied out.",
        "Allocate the tile in the loop that makes one sum, or pass accumulate=False to the first "
        "matmul of each sum.",
        _API,
    ),
    "sum-never-read": CatalogueEntry(
        809,
        "Sum in PSUM that is overwritten unread",
        "A matmul with accumulate=False, and every other instruction that writes to PSUM, replaces "
        "what was there.",
        "Leave accumulate out to add to the sum, or copy it out first.",
        _API,
    ),
    "partial-accumulation": CatalogueEntry(
        810,
        "A part of a sum in PSUM goes on",
        "A sum is started for a whole region. A matmul into a part of it adds to that part alone.",
        "Use the same slice for all matmuls of one sum, or pass accumulate=False to start another.",
        _API,
    ),
    "repeated-index": CatalogueEntry(
        811,
        "Scatter with an index that comes twice",
        "A transfer moves rows in no order that a document states: of rows that go to one place, "
        "any may stay.",
        "Make the indices differ, or drop rows with an index outside the tensor and oob_mode.skip.",
        _API,
    ),
    "index-outside": CatalogueEntry(
        812,
        "Index of a graph's caller outside of the array",
        "HLO takes the nearest row that there is, leaves an update out, and goes on.",
        "Pass indices from 0 to below the number of rows.",
        "neuron-runtime/nrt-troubleshoot.rst",
    ),
}


class NeuronWarning(RuntimeWarning):
    """A warning of the catalogue, at the kernel's line.

    >>> warning = NeuronWarning("nothing-returned", "the kernel `add` returns nothing")
    >>> print(str(warning).partition(":")[0])
    [NKI0803 nothing-returned] the kernel `add` returns nothing
    """

    def __init__(self, code: str, what: str, hint: str = "") -> None:
        entry = WARNINGS[code]
        self.code = code
        self.number = entry.number
        self.what = what
        self.hint = hint or entry.hint
        super().__init__(f"[NKI{entry.number:04d} {code}] {what}: {entry.rule} {self.hint}")


def warn(code: str, what: str, place: Any = None, hint: str = "") -> None:
    """Warn at a place in a kernel (`isa.program.SourceLocation`, or None)."""
    file, line = (place.file, place.line) if place else ("<kernel>", 0)
    warnings.warn_explicit(NeuronWarning(code, what, hint), NeuronWarning, file, line)
