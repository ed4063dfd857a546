"""Proofs of loaded programs, kept on disk: a container that was proven is not proven again.

A proof is kept under the digest of the container's files, in a folder whose name is the digest of
what proves: another version of the checker proves again. Only what was proven without a warning
and took longer than `WORTH` is kept; what is damaged or belongs elsewhere counts as absent.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from nki import progress
from simulator.native.codegen.object_cache import Cache, key_of

if TYPE_CHECKING:
    from isa.files.archive import Contents

WORTH = 0.005
"""Seconds that a proof takes at least which is kept; a file is read in a tenth of them."""

_PROVEN = b"every two conflicting accesses are ordered"


def prove(contents: Contents, kept: Cache | None = None) -> None:
    """Raise NeuronError race unless the program of a container is proven, now or earlier."""
    kept = kept or Cache(_checker())
    name = contents.digest.hex()
    if kept.read(name) == _PROVEN:
        return
    from nki.verification import verify_program

    progress.stage("proof that nothing races")
    start = time.perf_counter()
    if verify_program(contents.program) and time.perf_counter() - start >= WORTH:
        kept.write(name, _PROVEN)


@cache
def _checker() -> str:
    """Digest of all that a proof depends on but the container."""
    root = Path(__file__).resolve().parents[2]
    files = [*Path(__file__).parent.glob("*.py"), *(root / "isa").rglob("*.py")]
    for folder in ("simulator", "simulator/races", "simulator/numerics"):
        files += (root / folder).glob("*.py")
    return key_of("proofs", files)
