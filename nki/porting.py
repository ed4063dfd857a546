"""What kernels of the first-generation API (`neuronxcc.nki`) need, name by name and call by call.

Source: SDK nki/migration/index.rst. `nki migrate` lists it; nothing of it is rewritten.
"""

from __future__ import annotations

from collections.abc import Collection

from nki.language.removed import REMOVED

_PACKAGE = "neuronxcc.nki."
_LANGUAGE, _OPERATIONS = "language", "isa"

_ADDRESS = "give nl.ndarray address=(start partition, byte in the partition), or leave it out"

_GONE = {
    "baremetal": "decorate with @nki.jit and call the kernel with arrays",
    "benchmark": "nki.profile(kernel)(...) returns the outputs and the times",
    "simulate_kernel": "write nki.simulate(kernel)(...)",
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
_KEYWORDS = {"mask": REMOVED["mask"]}


def note_on_name(dotted: str) -> str | None:
    """What to write for a name that is gone, None for others.

    >>> note_on_name("neuronxcc.nki.simulate_kernel")
    'write nki.simulate(kernel)(...)'
    >>> note_on_name("neuronxcc.nki.language.add")
    """
    if not dotted.startswith(_PACKAGE):
        return None
    parts = dotted.removeprefix(_PACKAGE).split(".")
    for size in range(len(parts), 0, -1):
        note = _GONE.get(".".join(parts[:size]))
        if note is not None:
            return note
    return None


def notes_on_call(dotted: str, keywords: Collection[str]) -> list[tuple[str, str]]:
    """(what, note) of a call: keywords that are gone, and an operation without dst.

    >>> notes_on_call("neuronxcc.nki.isa.activation", ["op", "data", "mask"])[1]
    ('mask=', 'slice operands to the size that counts; nisa.affine_select masks by position')
    """
    if not dotted.startswith(_PACKAGE):
        return []
    found = []
    module, _, name = dotted.removeprefix(_PACKAGE).rpartition(".")
    if module == _OPERATIONS and name in _made_results() and "dst" not in keywords:
        found.append(("", _RESULT))
    found += [(f"{keyword}=", _KEYWORDS[keyword]) for keyword in keywords if keyword in _KEYWORDS]
    return found


def _made_results() -> frozenset[str]:
    """The operations that write to a first operand `dst`, all of which made a tile before."""
    from isa.operations import OPERATIONS

    return frozenset(name for name, row in OPERATIONS.items() if row.field_names[:1] == ("dst",))


__all__ = ["note_on_name", "notes_on_call"]
