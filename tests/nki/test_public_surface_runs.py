"""Every documented name runs against NumPy: once by default, for all dtypes and targets on demand.

The cases are in the modules `surface_*`. With `--all-surface` every dtype runs on every target;
what no document promises may be refused, and on a target that lacks the name it must be.
"""

import json
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import surface_collectives
import surface_isa  # noqa: F401  (enters its cases)
import surface_isa_state
import surface_language
import surface_search
from surface import CASES, EVERY, TARGETS, kernel_of

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError
from isa.fields import Operand
from isa.operations import OPERATIONS
from nki.ir.nodes import Access, Op, walk

FACTS = Path(__file__).resolve().parents[3] / "shared" / "facts" / "nki_api.json"
USED_BY = {
    **surface_isa_state.USED_BY,
    **surface_search.USED_BY,
    **surface_language.USED_BY,
    **surface_collectives.USED_BY,
}
ELSEWHERE = {
    "nki.isa.dge_mode": "tests/simulator/test_gather_numerics.py",
    "nki.isa.oob_mode": "tests/simulator/test_operation_numerics.py",
    "nki.isa.matmul_perf_mode": "tests/simulator/test_array_numerics.py",
    "nki.isa.dma_engine": "tests/simulator/test_exchange_numerics.py",
    "nki.isa.tensor_engine": "tests/simulator/test_operation_numerics.py",
    "nki.isa.NkiInstruction": "tests/nki/test_tracer.py",
    "nki.isa.NkiValidationError": "tests/nki/test_public_surface_runs.py",
}
"""Enumerations and classes whose members other tests run, by the file."""

USES = {"nki.isa.NkiInstruction": "depends_on"}


def supported(case):
    """The documented (dtype, target) pairs of a case, in order."""
    return [(d, t) for d in case.dtypes for t in TARGETS if case.supports(d, t)]


def test_every_documented_name_has_a_case():
    if not FACTS.exists():
        pytest.skip(f"the documented API is not here: {FACTS}")
    modules = json.loads(FACTS.read_text())["modules"]
    names = {f"{module}.{name}" for module, entries in modules.items() for name in entries}
    run = {case.partition(" ")[0] for case in CASES} | {*USED_BY, *ELSEWHERE}
    assert names - run == set()
    assert run - names <= {"nki.language.bool"}
    assert set(USED_BY.values()) <= set(CASES)
    root = Path(__file__).resolve().parents[2]
    for name, file in ELSEWHERE.items():
        assert USES.get(name, name.rpartition(".")[2]) in (root / file).read_text(), name


def test_a_refused_call_is_a_validation_error():
    def kernel(a):
        tile = nl.load(a)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=tile[:, 0:2], op=nl.add)

    with pytest.raises(nisa.NkiValidationError, match="shape-mismatch"):
        nki.simulate(nki.jit(kernel))(np.ones((2, 4), np.float32))


@pytest.mark.parametrize("name", CASES)
def test_name(name):
    """One documented dtype on one target, spread over all of them by the name."""
    case = CASES[name]
    pairs = supported(case)
    case.run(*pairs[zlib.crc32(name.encode()) % len(pairs)])


@pytest.mark.parametrize("name", CASES)
def test_every_dtype_and_target(name, request):
    if not request.config.getoption("--all-surface"):
        pytest.skip("every dtype on every target: --all-surface")
    case = CASES[name]
    for dtype in EVERY:
        for target in TARGETS:
            if case.supports(dtype, target):
                case.run(dtype, target)
                continue
            try:
                built = case.build(dtype)
            except TypeError:  # NumPy cannot compute with packed dtypes
                continue
            with suppress(NeuronError):
                case.results(built, dtype, target)
                assert target in case.targets, f"{name} of {dtype} runs on {target}"


def test_every_dtype_of_operands_that_take_few(request):
    """Operands with a list of dtypes in the operation table have met all of them in some case."""
    if not request.config.getoption("--all-surface"):
        pytest.skip("every dtype on every target: --all-surface")
    missing = {
        (row.name, name, dtype)
        for row in OPERATIONS.values()
        if row.public
        for name, field in row.fields.items()
        if isinstance(field, Operand) and field.dtypes is not None
        for dtype in field.dtypes
    }
    for case in CASES.values():
        for dtype, target in supported(case) if case.ranks == 0 else ():
            body, inputs, _ = case.build(dtype)
            kernel = nki.jit(kernel_of(body, dtype), platform_target=target)[case.cores]
            for nodes in kernel.trace(list(inputs)).bodies:
                missing -= set(_met(nodes))
    assert missing == set()


def _met(nodes):
    """(operation, operand, dtype) of every tensor operand."""
    for node in walk(nodes):
        if isinstance(node, Op):
            for name, value in zip(node.row.field_names, node.values):
                if isinstance(value, Access):
                    yield node.row.name, name, value.dtype
