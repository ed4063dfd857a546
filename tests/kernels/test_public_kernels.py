"""Kernels of public repositories, unmodified, against NumPy formulas, in every mode.

Each test needs the checkout that its option names (CONTRIBUTING.md); without it it is skipped.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import inference_cases
import nki_samples_cases
import nkipy_cases
import numpy as np
import pytest
import sdk_cases
from checkouts import REPOSITORIES, Checkout
from kernel_case import MODES, assert_close

import nki
from nki.superseded.migration import findings, migrated

pytestmark = pytest.mark.filterwarnings("ignore::nki.superseded.MigrationWarning")

SUITES = {
    "--nki-samples": nki_samples_cases,
    "--neuron-sdk": sdk_cases,
    "--neuronx-distributed-inference": inference_cases,
    "--nkipy": nkipy_cases,
}
OLD_IMPORT = re.compile(r"^[ \t]*(import|from) neuronxcc(\.nki\b(?!\.typing)| import nki\b)", re.M)
"""Imports of the first generation, but for those of types, which are there."""

NOT_OURS = ("scipy", "test", "torch")
"""What modules of nki-library import and this project does not need: the last one's tests too."""


@pytest.fixture(scope="session")
def checkouts(request):
    """The checkout of an option, or a skip that says which option."""
    known = {}

    def checkout(option):
        repository = next(r for r in REPOSITORIES if r.option == option)
        path = request.config.getoption(option)
        if path is None:
            pytest.skip(f"needs {option}=PATH, a checkout of {repository.name}")
        return known.setdefault(option, Checkout(repository, path))

    return checkout


@pytest.mark.parametrize(
    ("option", "case"),
    [(option, case) for option, suite in SUITES.items() for case in suite.CASES],
    ids=str,
)
def test_a_kernel_computes_its_formula(option, case, checkouts, tmp_path, monkeypatch):
    checkout = checkouts(option)
    if case.needs:
        monkeypatch.syspath_prepend(checkouts(case.needs).packages)
    for name, value in case.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", case.target)
    kernel = nki.jit(checkout.kernel(case.path, case.kernel, tmp_path))
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", case.target)
    kernel = kernel[case.cores] if case.cores > 1 else kernel
    inputs = case.inputs(np.random.default_rng(0))
    expected = case.expected(*inputs, **case.named)
    first = None
    for mode in MODES:
        outputs = outputs_of(case, nki.simulate(kernel, mode=mode), inputs)
        assert_close(outputs, expected, case.tolerance)
        first = first or outputs
        for have, want in zip(outputs, first, strict=True):
            np.testing.assert_array_equal(have, want)  # all modes give the same bits


def outputs_of(case, run, inputs):
    """What a call on copies of the inputs returns, or writes."""
    inputs = [x.copy() if isinstance(x, np.ndarray) else x for x in inputs]
    if case.by_name:
        result = run(**dict(zip(case.by_name, inputs, strict=True)), **case.named)
    else:
        result = run(*inputs, **case.named)
    if not case.returns:
        assert result is None
        result = inputs[-1]
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("refusal", sdk_cases.REFUSALS, ids=str)
def test_a_kernel_that_shows_a_mistake_is_refused(refusal, mode, checkouts, tmp_path):
    function = checkouts("--neuron-sdk").kernel(refusal.path, refusal.kernel, tmp_path)
    inputs = [np.zeros(shape, np.float32) for shape in refusal.shapes]
    with pytest.raises(refusal.error, match=refusal.message):
        nki.simulate(nki.jit(function), mode=mode)(*inputs)


@pytest.mark.parametrize("name", ["kernel_without_sbm", "kernel_with_sbm"])
def test_addresses_of_an_allocator(name, checkouts, tmp_path, monkeypatch, capsys):
    """The page tells the addresses that its kernel prints; the heap is at the end of SBUF."""
    monkeypatch.syspath_prepend(checkouts("--nki-library").packages)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    page = "nki/library/kernel-utils/allocator.rst"
    kernel = checkouts("--neuron-sdk").kernel(page, name, tmp_path)
    nki.simulate(kernel)(*2 * [np.zeros((1, 1), np.float32)])
    printed = [line for line in capsys.readouterr().out.splitlines() if ".address" in line]
    heap = nki.language.tile_size.sbuf_fmax_bytes - 512
    offsets = {"weights": heap, "buf1": 0, "buf2": 1024, "buf3": 1536, "buf4": 1024}
    assert printed == [f"{buffer}.address = (0, {offset})" for buffer, offset in offsets.items()]


@pytest.mark.parametrize("option", SUITES)
def test_no_kernel_is_left_out_in_silence(option, checkouts):
    """Every kernel of a checkout has a test or a reason, and every test and reason a kernel.

    Files with the same content count as one.
    """
    suite, sources = SUITES[option], checkouts(option).sources
    named = {(case.path, case.kernel) for case in (*suite.CASES, *suite.OTHERS)}
    assert not named & suite.LEFT_OUT.keys()
    stated = named | suite.LEFT_OUT.keys()
    tested = {sources[path].text for path, _ in stated if path in sources}
    found = {
        (path, kernel)
        for path, source in sources.items()
        for kernel in source.kernels
        if source.text not in tested or any(path == known for known, _ in stated)
    }
    assert sorted(found - stated) == []
    assert sorted(stated - found) == []


def test_first_generation_kernels_name_what_replaces_their_api(checkouts):
    """The import of every old file of nki-samples is refused with the way out."""
    root = checkouts("--nki-samples").root
    old = 0
    for path in sorted(root.rglob("*.py")):
        for line in path.read_text().splitlines():
            if OLD_IMPORT.match(line) and not line.startswith(" "):
                old += 1
                with pytest.raises(ModuleNotFoundError, match="Write `import nki`") as caught:
                    exec(line, {})
                assert "nki migrate" in str(caught.value)
    assert old > 20


def test_every_module_of_nki_library_imports(checkouts, tmp_path):
    """In a process of its own, as the import of the types puts packages into `sys.modules`."""
    packages = checkouts("--nki-library").packages
    code = (
        "import importlib, pkgutil, sys\n"
        f"sys.path.insert(0, {packages!r})\n"
        "count = 0\n"
        f"for module in pkgutil.walk_packages([{packages!r}], onerror=lambda name: None):\n"
        "    try:\n"
        "        importlib.import_module(module.name)\n"
        "        count += 1\n"
        "    except ModuleNotFoundError as error:\n"
        f"        if error.name.partition('.')[0] not in {NOT_OURS!r}:\n"
        "            raise\n"
        "print(count, 'nkilib.core.router_topk.router_topk' in sys.modules)\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    count, router = done.stdout.split() or (done.stderr, "")
    assert router == "True" and int(count) >= 130, done.stderr


@pytest.mark.parametrize("option", [r.option for r in REPOSITORIES])
def test_migration_of_every_file(option, checkouts):
    """`nki migrate` reads what Python reads, leaves Python behind, and finds no more then."""
    files = 0
    for path in sorted(Path(checkouts(option).root).rglob("*.py")):
        source = path.read_text(errors="replace")
        if not re.search(r"^\s*(import|from) (nki|neuronxcc)\b", source, re.M):
            continue
        try:
            ast.parse(source)
        except SyntaxError:
            continue
        files += 1
        after = migrated(source)
        ast.parse(after)
        assert [f for f in findings(after) if f.replacement is not None] == [], path
        old = OLD_IMPORT.search(source)
        assert old is None or findings(source), path
    assert files > 0
