"""Superseded spellings: they work with a hint, and `nki migrate` replaces them exactly."""

import ast
import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import nki
from nki.cli.application import run
from nki.superseded import MODULES, SUPERSEDED, MigrationWarning
from nki.superseded.migration import findings, migrated

RANGES = ("affine", "sequential", "static")

REWRITES = [
    ("import nki.language as nl\nx = nl.bool\n", "import nki.language as nl\nx = nl.bool_\n"),
    (
        "import nki.language\nx = nki.language.bool\n",
        "import nki.language\nx = nki.language.bool_\n",
    ),
    (
        "from nki import language\nx = language.bool\n",
        "from nki import language\nx = language.bool_\n",
    ),
    (
        "import nki.language as nl\nfor i in nl.range(3): pass\n",
        "import nki.language as nl\nfor i in range(3): pass\n",
    ),
    (
        "from nki.isa.constants import dge_mode, oob_mode  # both\n",
        "from nki.isa import dge_mode, oob_mode  # both\n",
    ),
    (
        "from nki.isa.constants import (\n    dge_mode as d,\n)\nd.hwdge\n",
        "from nki.isa import (\n    dge_mode as d,\n)\nd.hwdge\n",
    ),
    (
        "import nki.isa.constants as c\nx = c.oob_mode.skip\n",
        "import nki.isa as c\nx = c.oob_mode.skip\n",
    ),
    (
        "import nki\nimport nki.isa as nisa\nx = nisa.constants.oob_mode.skip\n",
        "import nki\nimport nki.isa as nisa\nx = nisa.oob_mode.skip\n",
    ),
    ("import nki.dtype as nt\nx = nt.float32\n", "import nki.language as nt\nx = nt.float32\n"),
    (
        "import nki\ndef f(x: nki.dtype = nki.dtype.float32): pass\n",
        "import nki\ndef f(x: nki.language.DType = nki.language.float32): pass\n",
    ),
    (
        "import nki\nimport nki.language as nl\ndef f(x: list[nki.dtype]) -> nki.dtype: pass\n",
        "import nki\nimport nki.language as nl\ndef f(x: list[nl.DType]) -> nl.DType: pass\n",
    ),
    (
        "import nki\nr = nki.cpu_simulate(kernel)[2](a=1)\n",
        "import nki\nr = nki.simulate(kernel[2])(a=1)\n",
    ),
    (
        "import nki\nr = nki.cpu_simulate(kernel)(a)\n",
        "import nki\nr = nki.simulate(kernel)(a)\n",
    ),
    (
        "import nki.language as nl\nn = nl.tile_size.total_available_sbuf_size // 2\n",
        "import nki.language as nl\nn = nl.tile_size.sbuf_fmax_bytes // 2\n",
    ),
    (
        "import nki.language as nl\nn = nl.tile_size.psum_fmax\n",
        "import nki.language as nl\nn = nl.tile_size.psum_bank_fmax\n",
    ),
    (
        "import nki.isa as nisa\nnisa.memset(t, 0, engine=nisa.vector_engine)\n",
        "import nki.isa as nisa\nnisa.memset(t, 0, engine=nisa.engine.vector)\n",
    ),
    (
        "import nki\n@nki.jit(mode='jax', debug_kernel=True)\ndef f(): pass\n",
        "import nki\n@nki.jit(debug_kernel=True)\ndef f(): pass\n",
    ),
    ("import nki\nnki.jit(f, mode='jax')\n", "import nki\nnki.jit(f)\n"),
    (
        "import nki\n@nki.jit( mode='jax' )\ndef f(): pass\n",
        "import nki\n@nki.jit(  )\ndef f(): pass\n",
    ),
    (
        "import nki.isa as nisa\nnisa.nc_matmul(a, b, c, is_moving_zero=True)\n",
        "import nki.isa as nisa\nnisa.nc_matmul(a, b, c, is_moving_onezero=True)\n",
    ),
    (
        "import nki.isa as nisa\nnisa.nc_matmul(a, b, c, psumAccumulateFlag=3)\n",
        "import nki.isa as nisa\nnisa.nc_matmul(a, b, c)\n",
    ),
    (
        "from nki import collectives as ncc\n"
        "r = ncc.collective_permute_implicit_current_processing_rank_id(\n"
        "    iteration_id=0, channel_id=c, num_channels=N, replica_group=g\n)\n",
        "from nki import collectives as ncc\n"
        "r = ncc.collective_permute_implicit_current_processing_rank_id(\n"
        "    iteration_id=0, channel_id=c, replica_group=g\n)\n",
    ),
    (
        "import nki.isa as nisa\nnisa.dma_copy(a, b, dge_mode=2, oob_mode=7)\n",
        "import nki.isa as nisa\nnisa.dma_copy(a, b, dge_mode=nisa.dge_mode.hwdge, oob_mode=7)\n",
    ),
    (
        "import nki.language as nl\nx = nl.zeros((2, 3), nl.int8, buffer='psum')\n",
        "import nki.language as nl\nx = nl.zeros((2, 3), nl.int8, buffer=nl.psum)\n",
    ),
    (
        "import nki.meta.tensor as t\nx: t.NkiTensor\n",
        "import nki.language as t\nx: t.NkiTensor\n",
    ),
    (
        "import nki.language as nl\r\ns = 'é' ; x = nl.bool\r\n",
        "import nki.language as nl\r\ns = 'é' ; x = nl.bool_\r\n",
    ),
]


@pytest.mark.parametrize(("before", "after"), REWRITES, ids=range(len(REWRITES)))
def test_a_spelling_is_replaced_and_nothing_else(before, after):
    assert migrated(before) == after
    ast.parse(after)
    assert migrated(after) == after
    assert findings(after) == []


@pytest.mark.parametrize(
    "source",
    [
        "nl = object()\nnl.bool\n",
        "import numpy as nl\nnl.bool\n",
        "import nki.language as nl\ntext = 'nl.bool'  # nl.bool\n",
        "from .language import bool\nbool\n",
    ],
)
def test_what_only_looks_like_a_spelling_stays(source):
    assert findings(source) == [] and migrated(source) == source


@pytest.mark.parametrize(
    ("source", "old", "note"),
    [
        (
            "import nki.isa as nisa\nr = nisa.register_alloc()\nwhile r: pass\nwhile s: pass\n",
            "while register:",
            "condition",
        ),
        (
            "import nki.language as nl\nfor i in nl.dynamic_range(r): pass\n",
            "nki.language.dynamic_range",
            "body",
        ),
        ("import neuronxcc.nki.language as nl\n", "neuronxcc.nki", "first-generation"),
        ("from neuronxcc import nki\n", "neuronxcc.nki", "first-generation"),
        (
            "import nki.isa as nisa\nnisa.tensor_copy_dynamic_src(a)\n",
            "nki.isa.tensor_copy_dynamic_src",
            "scalar_offset",
        ),
        (
            "import nki.isa as nisa\nnisa.dma_compute(d, s, [1.0, 1.0], nl.add)\n",
            "nki.isa.dma_compute(dst, srcs, scales, reduce_op)",
            "srcs, reduce_op, scales",
        ),
        (
            "import nki.isa as nisa\nnisa.dma_compute(d, [s], reduce_op=nl.add)\n",
            "nki.isa.dma_compute(dst, [src])",
            "what dst holds",
        ),
        (
            "import nki.isa as nisa\nnisa.affine_select(d, [[1, 8]], 0, 1, t, 0.0)\n",
            "nki.isa.affine_select(dst, pattern, offset, ...)",
            "offset=offset",
        ),
        (
            "import nki.typing as nt\nx: nt.mutable_tensor\n",
            "nki.typing.mutable_tensor",
            "nki.language.NkiTensor",
        ),
        (
            "import nki\n@nki.jit(platform_target='trn2')\ndef f(): pass\n",
            "nki.jit(platform_target=)",
            "environment variable",
        ),
        (
            "import nki.language as nl\nfor i in nl.affine_range(n): pass\n",
            "nki.language.affine_range",
            "launch symbol",
        ),
    ],
)
def test_what_is_left_to_the_author(source, old, note):
    (finding,) = findings(source)
    assert finding.old == old and finding.replacement is None and note in finding.note
    assert migrated(source) == source


OLD_KERNEL = """import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
from neuronxcc.nki.compiler import sbuf

@nki.baremetal
def kernel(a):
    rows = nl.arange(128)[:, None]
    tile = nl.load(a[rows, 0:4], mask=(rows < 100))
    buffers = nl.ndarray((8, nl.par_dim(128), 4), dtype=nl.float32, buffer=sbuf.alloc(f))
    half = nisa.tensor_scalar(tile, op0=np.multiply, operand0=0.5)
    nisa.tensor_copy(dst=half, src=tile)
    return nl.add(half, half)
"""


def test_what_is_left_of_a_first_generation_kernel_below_imports_of_today():
    """SDK nki/migration/index.rst, "Update indexing syntax for mgrid and arange", "Deprecation of
    masking", "Removing block dimensions": names that today's modules have not."""
    today = OLD_KERNEL.replace("neuronxcc.nki as nki", "nki").replace("neuronxcc.", "")
    found = [(f.line, f.old.removeprefix("nki."), f.replacement) for f in findings(today)]
    assert found == [
        (6, "baremetal", None),
        (8, "language.arange", None),
        (9, "language.load(mask=)", None),
        (10, "language.par_dim", None),
        (10, "compiler.sbuf.alloc", None),
        (11, "isa.tensor_scalar(op0=)", None),
    ]
    assert migrated(today) == today


def test_what_a_first_generation_kernel_needs():
    found = [(f.line, f.old.removeprefix("neuronxcc.nki"), f.note) for f in findings(OLD_KERNEL)]
    expected = [
        (1, "", "first-generation API"),
        (2, "", "first-generation API"),
        (3, "", "first-generation API"),
        (4, "", "first-generation API"),
        (6, ".baremetal", "@nki.jit"),
        (8, ".language.arange", "nl.ds(start, size)"),
        (9, ".language.load(mask=)", "affine_select"),
        (10, ".language.par_dim", "list of tiles"),
        (10, ".compiler.sbuf.alloc", "address="),
        (11, ".isa.tensor_scalar()", "dst="),
        (11, ".isa.tensor_scalar(op0=)", "write nl.multiply"),
    ]
    assert [(line, old) for line, old, _ in found] == [(line, old) for line, old, _ in expected]
    assert all(part in note for (_, _, note), (_, _, part) in zip(found, expected))
    assert migrated(OLD_KERNEL) == OLD_KERNEL


def test_the_command(tmp_path, capsys):
    path = tmp_path / "kernel.py"
    path.write_text("import nki.language as nl\nx = nl.bool\ny = nl.dynamic_range\n")
    before = path.read_text()
    assert run(["migrate", "--check", str(path)]) == 0
    assert path.read_text() == before and "nl.bool_" in capsys.readouterr().out
    assert run(["migrate", "--json", str(path)]) == 0
    assert path.read_text() == before.replace("nl.bool", "nl.bool_")
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [(f["line"], f["column"], f["replacement"]) for f in found] == [
        (2, 4, "nl.bool_"),
        (3, 4, None),
    ]
    assert run(["migrate", str(tmp_path / "none.py")]) == 6
    path.write_text("def\n")
    assert run(["migrate", str(path)]) != 0


def test_no_file_changes_when_one_cannot_be_read(tmp_path):
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text("import nki.language as nl\nx = nl.bool\n")
    before = good.read_text()
    for text in ("def\n", "# coding: nonsense\n"):
        bad.write_text(text)
        assert run(["migrate", str(good), str(bad)]) != 0
        assert good.read_text() == before
    assert run(["migrate", str(good), str(tmp_path / "none.py")]) == 6
    assert good.read_text() == before


def test_a_file_keeps_its_permissions_and_a_link_stays_one(tmp_path):
    path, link = tmp_path / "kernel.py", tmp_path / "link.py"
    path.write_text("#!/usr/bin/env python\nimport nki.language as nl\nx = nl.bool\n")
    path.chmod(0o750)
    link.symlink_to("kernel.py")
    assert run(["migrate", str(link)]) == 0
    assert link.is_symlink() and "nl.bool_" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o750
    assert sorted(file.name for file in tmp_path.iterdir()) == ["kernel.py", "link.py"]


USES = {
    "nki.cpu_simulate": "nki.cpu_simulate(print)",
    **{f"nki.language.{name}_range": f"nki.language.{name}_range(3)" for name in RANGES},
}
"""How a name is used, where naming it is not enough."""

OTHERS = (
    "nki.dtype.float32",
    "nki.dtype.float8_e5m2_x4",
)
"""Names in superseded modules."""

GONE = ("nki.isa.tensor_copy_dynamic_src", "nki.isa.tensor_copy_dynamic_dst")
"""Removed in NKI 0.4.0."""

AT_LOOPS = ("nki.language.dynamic_range",)
"""Hint inside of kernels only: tested below."""


@pytest.mark.parametrize(
    "old", [row.old for row in SUPERSEDED if row.old not in (*GONE, *AT_LOOPS)] + list(OTHERS)
)
def test_a_superseded_spelling_works_and_says_what_replaces_it(old):
    new = {row.old: row.new for row in SUPERSEDED}.get(old, f"nki.language.{old.split('.')[-1]}")
    with pytest.warns(MigrationWarning, match=f"use {new}") as caught:
        eval(USES.get(old, old), {"nki": nki})
    (warning,) = caught
    assert warning.filename == "<string>"


@pytest.mark.parametrize("old", GONE)
def test_a_spelling_that_is_gone_says_what_replaces_it(old):
    with pytest.raises(AttributeError, match=r"use nki.isa.tensor_copy .*scalar_offset"):
        eval(old, {"nki": nki})


@pytest.mark.parametrize("module", [row.old for row in MODULES if row.rewrite])
def test_a_superseded_module_is_imported_and_an_attribute(module):
    for text in (f"import {module}", "import nki"):
        done = subprocess.run([sys.executable, "-c", f"{text}\nprint({module})"], text=True)
        assert done.returncode == 0


@pytest.mark.parametrize("name", ["simulate_kernel", "baremetal"])
def test_a_function_of_the_first_generation_says_what_to_write(name):
    with pytest.raises(AttributeError, match=r"nki\.(simulate|profile|jit)"):
        getattr(nki, name)


def test_the_mode_of_a_kernel_says_that_it_is_superseded():
    with pytest.warns(MigrationWarning, match="use nki.jit()") as caught:
        nki.jit(mode="torchxla")(print)
    assert [warning.filename for warning in caught] == [__file__]


def test_a_number_for_a_member_says_its_name():
    """release-notes/components/nki.rst, 0.3.0: use named enum members."""

    def kernel(a):
        tile = nki.language.ndarray(a.shape, dtype=a.dtype, buffer=nki.language.sbuf)
        nki.isa.dma_copy(tile, a, dge_mode=1)

    with pytest.warns(MigrationWarning, match=r"dge_mode=1 .* use nki.isa.dge_mode.swdge"):
        (op,) = [
            node
            for node in nki.jit(kernel).trace(np.zeros((2, 3), np.float32)).bodies[0]
            if "dge_mode" in node.row.field_names
        ]
    assert op.values[op.row.field_names.index("dge_mode")] is nki.isa.dge_mode.swdge


def test_a_hint_comes_once_a_line():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            _ = nki.isa.gpsimd_engine
    assert len(caught) == 1


def test_a_hint_at_a_call_comes_once_a_line():
    def kernel():
        tile = nki.language.ndarray((2, 3), dtype=nki.language.int32, buffer=nki.language.sbuf)
        for _ in range(3):
            nki.isa.memset(tile, 2.0)
            nki.isa.memset(tile, 2, engine=5)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nki.jit(kernel).trace(target="trn2")
    first = kernel.__code__.co_firstlineno
    hints = [w for w in caught if issubclass(w.category, MigrationWarning)]
    assert [warning.lineno - first for warning in hints] == [3, 4]


def test_equal_lines_of_two_files_both_have_a_hint(tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name in ("first.py", "second.py"):
            exec(compile("import nki\nnki.language.bool\n", name, "exec"), {"__name__": name})
    assert [(w.filename, w.lineno) for w in caught] == [("first.py", 2), ("second.py", 2)]


def test_a_loop_over_a_register_says_what_replaces_it():
    def kernel():
        for _ in nki.language.dynamic_range(3):
            pass

    with pytest.warns(MigrationWarning, match="use nki.language.fori_loop") as caught:
        nki.jit(kernel).trace(target="trn2")
    assert caught[0].filename == __file__


def test_a_while_on_a_register_says_what_replaces_it():
    def kernel(a):
        tile, register = nki.language.load(a), nki.isa.register_alloc(1)
        while register:
            nki.isa.register_load(register, tile)

    with pytest.warns(MigrationWarning, match="use nki.language.while_loop") as caught:
        nki.jit(kernel)(np.zeros((1, 1), np.int32))
    hints = [w for w in caught if issubclass(w.category, MigrationWarning)]
    assert {(w.filename, w.lineno) for w in hints} == {
        (__file__, kernel.__code__.co_firstlineno + 2)
    }


def test_current_spellings_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _ = nki.language.bool_, nki.isa.oob_mode, nki.simulate, nki.language.float32


@pytest.mark.parametrize("before", ["", "import nki; "])
@pytest.mark.parametrize(
    "statement",
    [
        "import neuronxcc",
        "import neuronxcc.nki",
        "from neuronxcc import nki",
        "import neuronxcc.nki.language as nl",
        "from neuronxcc.starfish.support.dtype import static_cast",
    ],
)
def test_the_first_generation_names_its_replacement(before, statement):
    command = [sys.executable, "-c", before + statement]
    done = subprocess.run(command, capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode and last.startswith("ModuleNotFoundError: ")
    assert "neuronxcc.nki" in last and "import nki" in last and "nki migrate" in last


@pytest.mark.parametrize("before", ["", "import nki; "])
def test_the_types_of_the_first_generation_are_todays(before):
    """Public kernels of today's API import them by that name (nki-library 2.29, router_topk)."""
    code = before + (
        "import neuronxcc.nki.typing as nt\n"
        "from neuronxcc.nki.typing import tensor, mutable_tensor\n"
        "import nki.typing\n"
        "print(nt is nki.typing, tensor is nki.typing.tensor)\n"
        "for line in ('import neuronxcc.nki.language', 'from neuronxcc.nki.isa import add'):\n"
        "    try:\n"
        "        exec(line)\n"
        "    except ModuleNotFoundError as error:\n"
        "        print('nki migrate' in str(error))\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "True True\nTrue\nTrue\n", done.stderr


@pytest.mark.parametrize("together", [False, True])
def test_a_package_of_that_name_is_imported(tmp_path, together):
    """Later on the path, and in one folder with our module, as installed packages are."""
    package = tmp_path / "neuronxcc" / "nki"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("version = 2\n")
    (package / "__init__.py").write_text("here = 1\n")
    ours = [*filter(None, sys.path)]
    if together:
        shutil.copy(Path(nki.__file__).parents[1] / "neuronxcc.py", tmp_path)
        ours.insert(0, str(tmp_path))
    code = "import neuronxcc\nfrom neuronxcc.nki import here\nprint(here, neuronxcc.version)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join([*ours, str(tmp_path)])},
    )
    assert done.stdout == "1 2\n"
