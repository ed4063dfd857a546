"""The laws of this repository: import chain, sizes, where facts and settings live."""

from __future__ import annotations

import ast
import importlib
import inspect
import re

import pytest
from own_source_files import (
    ALGEBRA,
    CHAIN,
    ORDER,
    ROOT,
    TABLES,
    against_the_order,
    asserts,
    circles,
    compared_rows,
    imported_modules,
    imported_packages,
    imports_at_run_time,
    kept_by_identity,
    loaded_by,
    modules_of_nki,
    not_implemented,
    own_names,
    part_of,
    part_of_nki,
    public_objects,
    python_files,
    reads_environment,
    short,
    sources,
    tree,
)

from isa.machine import MACHINE_INSTRUCTIONS
from isa.operations import OPERATIONS
from isa.target import TARGETS, Figure

LINE_LIMIT = 100
FILE_LIMIT = 500
LONGER = {"simulator/timing/events.py": 700}
"""numba compiles the event loop as one function, which may call none of ours."""

SETTINGS = ("nki/settings.py", "simulator/runtime/visible_cores.py")
"""The modules that read environment variables: those of kernels, and those of the runtime."""

ABSTRACT = {
    "nki/ir/context.py": {"Context"},
    "simulator/views.py": {"PlacedAccess"},
}
"""Abstract bases, the only classes whose methods may raise NotImplementedError."""


@pytest.mark.parametrize("package", CHAIN)
def test_a_package_imports_only_packages_to_its_left(package: str) -> None:
    later = CHAIN[CHAIN.index(package) + 1 :]
    found = [
        f"{short(path)}:{line} imports {name}"
        for path in sources(package)
        for name, line in imported_packages(tree(path))
        if name in later
    ]
    assert found == []


def test_the_order_has_every_part_of_nki_once() -> None:
    assert sorted(ORDER) == sorted({part_of_nki(module) for module in modules_of_nki()})


def test_packages_of_nki_import_in_one_direction() -> None:
    known = modules_of_nki()
    found = [
        problem
        for module, path in known.items()
        for problem in against_the_order(imported_modules(tree(path), known), module)
    ]
    assert found == []


MOST_IN_A_CIRCLE = 3
"""Modules that may import each other when they run."""


def test_circles_of_imports_are_small() -> None:
    large = [found for found in circles(imports_at_run_time()) if len(found) > MOST_IN_A_CIRCLE]
    assert [found for found in large if not all(m.startswith(ALGEBRA) for m in found)] == []


FOLDERS = sorted(
    {
        ".".join(path.relative_to(ROOT).parts[:-2])
        for path in sources(*CHAIN)
        if len(path.relative_to(ROOT).parts) > 2
    }
    - {"nki", "nki.passes"}
)
"""The folders that hold others. `nki` has an order of its own, above. The passes that find an order
(`nki.passes.order`) compile trials, with all passes."""


@pytest.mark.parametrize("folder", FOLDERS)
def test_parts_of_a_folder_import_in_one_direction(folder: str) -> None:
    parts: dict[str, set[str]] = {}
    for module, imported in imports_at_run_time().items():
        if module.startswith(folder + "."):
            part = part_of(folder, module)
            inside = {part_of(folder, name) for name in imported if name.startswith(folder + ".")}
            parts[part] = parts.get(part, set()) | (inside - {part})
    # A circle of single files is looked at above; here folders count.
    folders = {part for part in parts if (ROOT / part.replace(".", "/")).is_dir()}
    assert [found for found in circles(parts) if found & folders] == []


def test_circles_are_found() -> None:
    assert list(circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == [{"a", "b", "c"}]


def test_the_check_of_the_order_finds_lazy_and_type_checking_imports() -> None:
    code = (
        "from nki.ir import nodes\nfrom nki import settings, kernel\n"
        "if TYPE_CHECKING:\n  from nki.kernel import Kernel\n"
        "def f():\n  import nki.trace.tracer\n"
    )
    imports = imported_modules(ast.parse(code), modules_of_nki())
    assert [problem.partition(":")[2] for problem in against_the_order(imports, "nki.ir")] == [
        "2 imports nki.kernel",
        "4 imports nki.kernel",
        "6 imports nki.trace.tracer",
    ]


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import isa.operations, isa.files.container", {"numpy", "sympy", "ml_dtypes"}),
        ("import isa.operations, isa.files.container", {"simulator", "nki"}),
        ("import simulator.execute, simulator.timing", {"nki", "sympy", "ml_dtypes"}),
        ("import nki", {"numpy", "sympy", "click", "rich", "simulator"}),
        ("import nki.cli.application", {"numpy", "sympy", "rich", "simulator"}),
    ],
)
def test_importing_loads_nothing_heavy_or_later(statement: str, unwanted: set[str]) -> None:
    assert loaded_by(statement) & unwanted == set()


def test_no_file_is_long_and_no_line_is_wide() -> None:
    found = []
    for path in python_files():
        lines = path.read_text(encoding="utf-8").splitlines()
        if len(lines) > LONGER.get(short(path), FILE_LIMIT):
            found.append(f"{short(path)} has {len(lines)} lines")
        found += [
            f"{short(path)}:{number} is {len(line)} wide"
            for number, line in enumerate(lines, 1)
            if len(line) > LINE_LIMIT
        ]
    assert found == []


MOST_FILES = 25
"""Modules that a folder may hold."""


def test_folders_hold_few_enough_files_to_look_through() -> None:
    sizes: dict[str, int] = {}
    for path in sources(*CHAIN):
        sizes[short(path.parent)] = sizes.get(short(path.parent), 0) + 1
    assert [folder for folder, files in sizes.items() if files > MOST_FILES] == []


def test_file_names_say_what_is_in_them() -> None:
    vague = {"utils.py", "util.py", "helpers.py", "misc.py", "common.py"}
    assert [short(path) for path in python_files() if path.name in vague] == []


ROWS = (*TABLES, "graph_compiler/hlo/operators/", "isa/scalar.py")
"""Where classes are rows, which have the names that documents give them."""

STANDARD = {
    "CompiledKernel": {"nki/compiled.py", "nki/compiler/ncc_driver.py"},
    "DynamicSlice": {"nki/ir/views/indexing.py"},
    "Instruction": {"isa/spec.py", "graph_compiler/hlo/graph.py"},
    "Module": {"graph_compiler/hlo/graph.py", "nki/compiler/frontend.py"},
    "Operation": {"isa/spec.py", "nki/compiler/frontend.py"},
    "While": {"nki/ir/nodes.py"},
}
"""Names of classes that documents use for two things, one of which may be a row of HLO: a name of
NKI, of the instruction set or of `nki.compiler`, and one of HLO."""


def public_classes() -> dict[str, set[str]]:
    """Where public classes are defined, rows of tables left out."""
    found: dict[str, set[str]] = {}
    for path in sources(*CHAIN):
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                if not short(path).startswith(ROWS):
                    found.setdefault(node.name, set()).add(short(path))
    return found


def test_a_class_name_has_one_meaning() -> None:
    found = public_classes()
    rows = {
        node.name
        for path in sources(*CHAIN)
        if short(path).startswith(ROWS)
        for node in tree(path).body
        if isinstance(node, ast.ClassDef)
    }
    assert len(rows) > 200 and len(found) > 500
    twice = {name: files for name, files in found.items() if len(files) > 1 or name in rows}
    assert twice == STANDARD


def test_no_cache_that_outlives_a_call_has_identities_as_keys() -> None:
    found = [(short(p), name) for p in sources(*CHAIN) for name in kept_by_identity(tree(p))]
    assert found == []


def test_a_cache_by_identity_is_found() -> None:
    code = "_known: dict[int, int] = {}\ndef f(x):\n  return _known.setdefault(id(x), 1)\n"
    assert list(kept_by_identity(ast.parse(code))) == ["f"]
    assert list(kept_by_identity(ast.parse(code.replace("id(x)", "x")))) == []


def test_helpers_that_assert_are_named_so() -> None:
    found = [
        f"{short(path)}: {node.name}"
        for path in sources("tests")
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith(("test_", "assert_", "main"))
        and not node.decorator_list
        and asserts(node)
    ]
    assert found == []


def test_the_map_of_the_code_is_short_and_names_what_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    paths = re.findall(r"`((?:isa|simulator|nki|graph_compiler|tests)/[\w/.]*)`", text)
    assert len(paths) > 30
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_glossary_has_few_words_in_order() -> None:
    rows = (ROOT / "GLOSSARY.md").read_text(encoding="utf-8").splitlines()
    words = [row.split("|")[1].strip() for row in rows if row.startswith("| ")][1:]
    assert len(words) <= 60
    assert words == sorted(words, key=lambda word: word.replace("-", ""))


def test_every_package_with_names_says_which_are_public() -> None:
    packages = [path for path in sources(*CHAIN) if path.name == "__init__.py"]
    unsaid = []
    for path in packages:
        if own_names(tree(path)) and "__all__" not in path.read_text(encoding="utf-8"):
            unsaid.append(short(path))
        module = importlib.import_module(".".join(path.relative_to(ROOT).parent.parts))
        unsaid += [
            f"{short(path)}: {n}" for n in getattr(module, "__all__", ()) if not hasattr(module, n)
        ]
    assert len(packages) > 50 and unsaid == []


def test_environment_variables_are_read_in_few_modules() -> None:
    found = [
        f"{short(path)}:{line}"
        for path in sources(*CHAIN)
        if short(path) not in SETTINGS
        for line in reads_environment(tree(path))
    ]
    assert found == []
    assert all(list(reads_environment(tree(ROOT / name))) for name in SETTINGS)


def test_no_row_name_is_compared_outside_the_tables() -> None:
    names = frozenset({*OPERATIONS, *MACHINE_INSTRUCTIONS})
    found = [
        f"{short(path)}:{line}"
        for path in sources(*CHAIN)
        if not short(path).startswith(TABLES)
        for line in compared_rows(tree(path), names)
    ]
    assert found == []


def test_the_check_for_compared_rows_finds_them() -> None:
    code = (
        "if op.row.name == x: pass\nif name in ('iota', 'b'): pass\nif row is Iota: pass\n"
        "match op:\n  case 'nc_matmul': pass\nif row.name in TABLE: pass\n"
    )
    names = frozenset(OPERATIONS)
    assert sorted(compared_rows(ast.parse(code), names)) == [1, 2, 5]


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_every_figure_has_a_source(target: object) -> None:
    figures = target.figures()  # type: ignore[attr-defined]
    assert len(figures) > 50
    assert [name for name, figure in figures.items() if not figure.source.strip()] == []


def test_every_number_of_a_target_is_a_figure() -> None:
    plain = {"generation", "default_logical_core_size"}
    for target in TARGETS.values():
        for name in type(target).__slots__:
            value = getattr(target, name)
            assert name in plain or not isinstance(value, (int, float)), name
            if isinstance(value, dict):
                assert all(isinstance(figure, Figure) for figure in value.values()), name


@pytest.mark.parametrize("row", MACHINE_INSTRUCTIONS.values(), ids=list(MACHINE_INSTRUCTIONS))
def test_every_cost_has_a_source(row: object) -> None:
    cost = row.cost  # type: ignore[attr-defined]
    assert cost is not None
    assert all(case.source for case in cost.cases)


def test_only_abstract_methods_raise_not_implemented_error() -> None:
    found = {short(path): set(not_implemented(tree(path))) for path in sources(*CHAIN)}
    assert {path: names for path, names in found.items() if names} == ABSTRACT


def test_no_place_is_marked_as_unfinished() -> None:
    marks = ("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")
    found = [
        f"{short(path)}:{number}"
        for path in python_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if any(mark in line for mark in marks)
    ]
    assert found == []


def test_every_module_says_what_it_is() -> None:
    empty = {short(p) for p in sources(*CHAIN) if not ast.get_docstring(tree(p))}
    assert empty == set()


PUBLIC = ("nki", "nki.language", "nki.isa", "nki.errors", "nki.report", "nki.settings")


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_docstring(name: str) -> None:
    objects = list(public_objects(importlib.import_module(name)))
    assert objects
    assert [label for label, value in objects if not (inspect.getdoc(value) or "").strip()] == []


def test_passes_leave_the_traced_kernel_unchanged() -> None:
    """Nodes are immutable by convention; rewrites return new ones."""
    import nki
    import nki.isa as nisa
    import nki.language as nl
    from nki import ir
    from nki.ir.text import print_kernel
    from nki.kernel import Kernel
    from nki.pipeline import STAGES, compile_kernel

    def scaled_products(a, b):  # type: ignore[no-untyped-def]
        rows, columns = a.shape
        out = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.shared_hbm)
        accumulator = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.psum)
        for i in nl.affine_range(rows // 128):
            left = nl.ndarray((128, 128), dtype=b.dtype, buffer=nl.sbuf)
            right = nl.ndarray((128, columns), dtype=a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=left, src=b[nl.ds(i * 128, 128), :])
            nisa.dma_copy(dst=right, src=a[nl.ds(i * 128, 128), :])
            nisa.nc_matmul(dst=accumulator, stationary=left, moving=right)
        tile = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=tile, data=accumulator, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out, src=tile)
        return out

    size = nki.symbol("M", multiple_of=128, max=1024)
    traced = Kernel(scaled_products).trace(
        nki.TensorSpec((size, 256), nl.bfloat16),
        nki.TensorSpec((size, 128), nl.bfloat16),
        target="trn2",
    )
    before = print_kernel(traced)
    seen: list[str] = []
    forms: dict[str, str] = {}

    def observe(stage: str, form: object) -> None:
        seen.append(stage)
        if isinstance(form, ir.TracedKernel):
            forms[stage] = print_kernel(form)
        assert print_kernel(traced) == before, f"{stage} changed the traced kernel"

    compile_kernel(traced, observe)
    assert tuple(seen) == STAGES
    assert forms["trace"] == before
    assert len(set(forms.values())) > 1, "no pass did anything"
