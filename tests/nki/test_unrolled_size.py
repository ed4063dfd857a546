"""A kernel of 32,768 matmuls that Python unrolls: memory to compile it, size of its container."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from matmul_kernels import LADDER

import nki
import nki.language as nl
from isa.files.container import read, write
from nki.pipeline import compile_kernel

MIB = 1 << 20

LARGE = """
import json, sys
import matmul_kernels, nki, nki.language as nl
from isa.files.container import write
specs = [nki.TensorSpec(shape, nl.bfloat16) for shape in ((8192, 4096), (8192, 8192))]
program = nki.compile(matmul_kernels.blocked_free, *specs, target="trn2").program
matmuls = sum(i.row.name == "MultiplyMoving" for s in program.cores[0].streams.values() for i in s)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
peak = int(status["VmHWM"].split()[0]) * 1024  # of this program; ru_maxrss remembers its parent
print(json.dumps([matmuls, peak, len(write(program))]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_32768_matmuls_need_little_memory_and_a_small_container():
    tutorials = Path(sys.modules["matmul_kernels"].__file__).parent
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tutorials)!r}){LARGE}"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    matmuls, peak, size = json.loads(run.stdout)
    assert matmuls == 32_768
    assert peak < 1024 * MIB
    assert size < 8 * matmuls, "an eighth of what instructions of 64 bytes would take"


@pytest.mark.parametrize("kernel", LADDER, ids=lambda kernel: kernel.__name__)
def test_the_container_does_not_grow_with_the_loops(kernel):
    """Of 8 times the instructions; the plain slots alone would be 8 times as long."""
    sizes, counts = [], []
    for inner, columns in ((1024, 1024), (2048, 4096)):
        specs = [nki.TensorSpec((inner, size), nl.bfloat16) for size in (1024, columns)]
        program = compile_kernel(kernel.trace(*specs, target="trn2"))
        data = write(program)
        assert read(data) == program
        sizes.append(len(data))
        counts.append(program.instruction_count)
    assert counts[1] > 6 * counts[0]
    assert sizes[1] < 2 * sizes[0]
