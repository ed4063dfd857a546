"""Cache on disk of proofs of containers, for proofs that took `WORTH` seconds and gave no warning.

The key is the digest of the container's files; the folder is named by a digest of the checker's
code, so another version of it proves again. A damaged entry counts as absent. A program whose proof
is fast, or warns, is proven again at each load.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from isa.object_cache import Cache, key_of
from nki import progress

if TYPE_CHECKING:
    from isa.files.archive import Contents

WORTH = 0.005
"""The least seconds of a proof that is cached. Reading the entry takes a tenth of them."""

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
