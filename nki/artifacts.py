"""What compiling leaves in a folder, for programs that load it without the kernel's source."""

from __future__ import annotations

from pathlib import Path

from isa.errors import NeuronError
from isa.program import Program
from nki import settings

NAME = "kernel.neff"
"""SDK neuron-runtime/nrtpy/nrtpy-troubleshooting.rst, "NEFF file not found after compilation"."""


def keep(program: Program) -> None:
    """Write a compiled program to NKI_ARTIFACTS_DIR, where that is set; `nki.load` reads it."""
    folder = settings.artifacts_folder()
    if folder is None:
        return
    from isa.files.container import save

    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NeuronError(
            "not-writable",
            f"NKI_ARTIFACTS_DIR is {folder!r}: {error.strerror}",
            hint="Name a folder that can be made or written to, or leave the variable out.",
        ) from error
    save(program, Path(folder) / NAME)
