"""What kernels of the first-generation API (`neuronxcc.nki`) need, name by name and call by call,
also where their imports are those of today already.

Source: SDK nki/migration/index.rst. `nki migrate` lists it; nothing of it is rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from nki.superseded import REMOVED as GONE_FUNCTIONS
from nki.superseded.removed import KEYWORDS, REMOVED

_PACKAGE, _TODAY = "neuronxcc.nki.", "nki."
_LANGUAGE, _OPERATIONS = "language", "isa"

_ADDRESS = "give nl.ndarray address=(start partition, byte in the partition), or leave it out"

_GONE = {
    **GONE_FUNCTIONS,
    "trace": "decorate with @nki.jit",
    "compiler.sbuf": _ADDRESS,
    "compiler.psum": _ADDRESS,
    "compiler.no_reorder": "write `with nl.no_reorder():` in the kernel",
    "compiler.skip_middle_end_transformations": "leave it out",
    "compiler.enable_stack_allocator": "leave it out",
    "kernels": "nki-library holds such kernels for this API",
    "_pre_prod_kernels": "nki-library holds such kernels for this API",
    **{f"{_LANGUAGE}.{name}": note for name, note in REMOVED.items()},
}
"""Names below the package, or the beginnings of names, and what to write instead."""

_RESULT = "returned its result; make a tile with nl.ndarray and pass it as dst="
_NUMPY = ("np", "numpy")
_OPERATOR = re.compile(r"(reduce_)?op\d?")


def is_first_generation(dotted: str) -> bool:
    """Whether a name is one of that API."""
    return dotted.startswith(_PACKAGE)


def is_kernel_api(dotted: str) -> bool:
    """Whether a name is one of that API, or of today's."""
    return dotted.startswith((_PACKAGE, _TODAY))


def _below_package(dotted: str) -> str:
    return dotted.removeprefix(_PACKAGE if is_first_generation(dotted) else _TODAY)


def note_on_name(dotted: str) -> str | None:
    """What to write for a name that is gone, None for others.

    >>> note_on_name("neuronxcc.nki.simulate_kernel")
    'write nki.simulate(kernel)(...)'
    >>> note_on_name("nki.language.mgrid").partition(", or")[0]
    'index with slices and nl.ds(start, size)'
    >>> note_on_name("neuronxcc.nki.language.add")
    """
    if not is_kernel_api(dotted):
        return None
    parts = _below_package(dotted).split(".")
    for size in range(len(parts), 0, -1):
        note = _GONE.get(".".join(parts[:size]))
        if note is not None:
            return note
    return None


def notes_on_call(dotted: str, keywords: Mapping[str, str]) -> list[tuple[str, str]]:
    """(what, note) of a call with these keywords and the text of their values: keywords that are
    gone, operators of NumPy, and an operation of the first generation without dst.

    >>> notes_on_call("neuronxcc.nki.isa.activation", {"dst": "a", "op": "np.exp"})
    [('op=', 'write nl.exp')]
    """
    found = []
    module, _, name = _below_package(dotted).rpartition(".")
    made = is_first_generation(dotted) and module == _OPERATIONS and name in _made_results()
    if made and "dst" not in keywords:
        found.append(("", _RESULT))
    for keyword, value in keywords.items():
        library, _, function = value.rpartition(".")
        if keyword in KEYWORDS:
            found.append((f"{keyword}=", KEYWORDS[keyword]))
        elif library in _NUMPY and _OPERATOR.fullmatch(keyword):
            found.append((f"{keyword}=", f"write nl.{function}"))
    return found


def _made_results() -> frozenset[str]:
    """The operations that write to a first operand `dst`, all of which made a tile before."""
    from isa.operations import OPERATIONS

    return frozenset(name for name, row in OPERATIONS.items() if row.field_names[:1] == ("dst",))
