"""jaxlib's conversions between StableHLO and HLO, in a process of their own with limits.

jaxlib offers them as `jaxlib.xla_client._xla.mlir` (jax 0.4 to 0.10). Files may come from anywhere,
and the C++ code ends its process on some invalid programs. Therefore the process has a limit on its
time and on its memory, both with the size of the program. It imports nothing from the current
folder, in which such a file may lie beside a `jaxlib.py`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass

from isa.errors import NeuronError

MISSING = 3
"""Exit code where jaxlib cannot be imported."""

REFUSED = 4
"""Exit code where XLA refuses the program."""

NO_MEMORY = 5
"""Exit code where Python has no memory; XLA's own code ends the process instead."""

LEAST_SECONDS, MOST_SECONDS, SECONDS_A_MIB = 60, 600, 20
"""A program of 100,000 operations (5.5 MiB) takes 12 seconds."""

LEAST_BYTES, BYTES_A_BYTE = 4 << 30, 64
"""Address space: a small program takes 0.4 GiB, one of 64 MB ten bytes for each of its own."""

TO_HLO = """
    graph = mlir.mlir_module_to_xla_computation(source, use_tuple_args=False, return_tuple=False)
    result = graph.as_serialized_hlo_module_proto()
"""

FROM_HLO = """
    result = mlir.xla_computation_to_mlir_module(xla_client.XlaComputation(source)).encode()
"""

_PROGRAM = """
import sys
sys.path[:] = {path!r}
try:
    import resource
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = {memory} if most < 0 else min({memory}, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
except (ImportError, OSError, ValueError):
    pass  # systems without such limits
try:
    from jaxlib import xla_client
    mlir = xla_client._xla.mlir
except (ImportError, AttributeError) as error:
    sys.stderr.write(str(error))
    sys.exit({missing})
source = sys.stdin.buffer.read()
try:{conversion}
except MemoryError:
    sys.exit({no_memory})
except Exception as error:
    sys.stderr.write(str(error))
    sys.exit({refused})
sys.stdout.buffer.write(result)
"""

_OUT_OF_MEMORY = re.compile("bad_alloc|out of memory|cannot allocate memory", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a conversion ended: 0 or REFUSED as `code`, or the code of a process that XLA ended;
    `result`, and what was written about it."""

    code: int
    result: bytes
    complaint: str

    @property
    def fatal(self) -> str:
        """Why XLA ended the process."""
        lines = [line for line in self.complaint.splitlines() if re.match(r"F\d{4} ", line)]
        return lines[0].partition("] ")[2] if lines else f"exit code {self.code}"


def convert(conversion: str, data: bytes, purpose: str) -> Conversion:
    """What became of a conversion, TO_HLO or FROM_HLO, of `data`.

    Raises NeuronError missing-extra without jaxlib, front-end out of time, hlo-too-large out of
    memory.
    """
    memory = LEAST_BYTES + BYTES_A_BYTE * len(data)
    seconds = min(MOST_SECONDS, LEAST_SECONDS + SECONDS_A_MIB * (len(data) >> 20))
    program = _PROGRAM.format(
        path=_trusted_path(),
        memory=memory,
        conversion=conversion,
        missing=MISSING,
        refused=REFUSED,
        no_memory=NO_MEMORY,
    )
    # -I: neither variables of the environment nor the current folder add to the path.
    command = [sys.executable, "-I", "-c", program]
    try:
        ended = subprocess.run(command, input=data, capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise NeuronError(
            "front-end", f"{purpose}: XLA took more than {seconds} s for {len(data)} bytes"
        ) from None
    complaint = ended.stderr.decode(errors="replace")
    if ended.returncode == MISSING:
        raise NeuronError(
            "missing-extra",
            f"{purpose} needs jaxlib, which cannot be used here ({complaint})",
            hint="Run `pip install 'opennki[jax]'`, or use the HLO proto of the same program.",
        )
    failed = ended.returncode not in (0, REFUSED)
    if ended.returncode == NO_MEMORY or (failed and _OUT_OF_MEMORY.search(complaint)):
        raise NeuronError(
            "hlo-too-large",
            f"{purpose}: XLA took more than {memory >> 20} MiB for {len(data)} bytes.",
        )
    return Conversion(ended.returncode, ended.stdout, complaint)


def _trusted_path() -> list[str]:
    """Where this process imports from, but for its current folder, however that is spelled."""
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # the folder is gone
        here = ""
    return [place for place in sys.path if os.path.isabs(place) and os.path.realpath(place) != here]
