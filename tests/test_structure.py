"""The laws of this repository: import chain, sizes, where facts and settings live."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from isa.machine import MACHINE_INSTRUCTIONS
from isa.operations import OPERATIONS
from isa.target import TARGETS, Figure

ROOT = Path(__file__).resolve().parents[1]
CHAIN = tuple(
    name
    for name in ("isa", "simulator", "nki", "graph_compiler")
    if (ROOT / name / "__init__.py").is_file()
)
"""Every package may import those before it."""

FILE_LIMIT = 700
LINE_LIMIT = 100

SETTINGS = ("nki/settings.py", "simulator/runtime/visible_cores.py")
"""The modules that read environment variables: those of kernels, and those of the runtime."""

TABLES = ("isa/operations/", "isa/machine/")
"""Where the names of rows may be spelled out."""

ABSTRACT = {
    "nki/ir/context.py": {"Context"},
    "simulator/views.py": {"PlacedAccess"},
}
"""Abstract bases, the only classes whose methods may raise NotImplementedError."""


def sources(*packages: str) -> list[Path]:
    return [p for name in packages for p in sorted((ROOT / name).rglob("*.py"))]


def python_files() -> list[Path]:
    """Every Python file of the repository."""
    folders = (*CHAIN, "tests", "tutorials", "benchmarks")
    return [path for path in sources(*folders) if path.is_file()]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported_packages(module: ast.Module) -> Iterator[tuple[str, int]]:
    """First parts of imported names, with lines; type-checking and lazy imports included."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.partition(".")[0], node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            yield (node.module or "").partition(".")[0], node.lineno


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


ORDER = (
    # What all others may use.
    *(
        "shadowed",
        "settings",
        "progress",
        "precision",
        "completion",
        "frameworks",
        "extensions",
        "displays",
    ),
    # Tile IR: nodes, text, checks, views, builders; what rewrites and what executes it.
    *(
        "ir",
        "verification.hbm_capacity",
        "passes",
        "pipeline",
    ),
    *("reference", "verification", "transformations", "advice"),
    # What authors of kernels call.
    *("superseded", "keywords", "language", "errors", "isa", "trace", "eager", "ranks"),
    # Kernels as they are called and compiled.
    *(
        "shared_addresses",
        "call_chains",
        "fingerprint",
        "compiled",
        "jax_transforms",
        "torch_exports",
        "kernel",
    ),
    *("expected", "tuning"),
    *("collectives", "simulator", "compiler"),
    *("superseded.migration", "superseded.absent"),
    # The package itself and its other public modules.
    *("", "builtin", "typing", "difference", "report"),
    # The command and the reference pages.
    *("row_pages", "cli", "pages", "stubs"),
)
"""The packages and modules of `nki`, "" for `nki` itself: each imports those before it only. A
module of a package that has a place of its own stands by its dotted name."""


def modules_of_nki() -> dict[str, Path]:
    """The modules of `nki` by their names."""
    found = {}
    for path in sources("nki"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def part_of_nki(module: str) -> str:
    """The package or module of `nki` with a place in ORDER that a module is or belongs to."""
    name = module.partition(".")[2]
    return name if name in ORDER else name.partition(".")[0]


def imported_modules(module: ast.Module, known: Collection[str]) -> Iterator[tuple[str, int]]:
    """The known modules that a file imports, with lines; type-checking and lazy imports included.

    `from nki import settings` imports the module `nki.settings`.
    """
    for node in ast.walk(module):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else str(node.module) for name in inner]
        for name in names:
            if name in known:
                yield name, getattr(node, "lineno", 0)


def against_the_order(imports: Iterator[tuple[str, int]], importer: str) -> Iterator[str]:
    place = ORDER.index(part_of_nki(importer))
    for name, line in imports:
        if ORDER.index(part_of_nki(name)) > place:
            yield f"{importer}:{line} imports {name}"


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


def run_time_imports(node: ast.AST) -> Iterator[ast.stmt]:
    """The import statements of a module, those in functions included; not those for types only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child
        elif not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from run_time_imports(child)


def circles(imports: dict[str, set[str]]) -> Iterator[set[str]]:
    """The sets of modules that import each other, directly or through others."""

    def reached(start: str) -> set[str]:
        found, ahead = set(), [start]
        while ahead:
            new = imports[ahead.pop()] - found
            found |= new
            ahead += new
        return found

    reach = {module: reached(module) for module in imports}
    seen: set[str] = set()
    for module in imports:
        if module in reach[module] and module not in seen:
            circle = {other for other in reach[module] if module in reach[other]}
            seen |= circle
            yield circle


MOST_IN_A_CIRCLE = 3
"""Modules that may import each other when they run."""

ALGEBRA = "isa.affine."
"""Polynomials: `a < b` gives a predicate, which is decided by bounds, which are polynomials. The
modules of this package may be a larger circle."""


@cache
def imports_at_run_time() -> dict[str, set[str]]:
    """The modules that each module imports when it runs."""
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sources(*CHAIN)
    }
    imports = {}
    for module, path in modules.items():
        statements = ast.Module([*run_time_imports(tree(path))], [])
        imports[module] = {name for name, _ in imported_modules(statements, modules)}
    return imports


def test_circles_of_imports_are_small() -> None:
    large = [found for found in circles(imports_at_run_time()) if len(found) > MOST_IN_A_CIRCLE]
    assert [found for found in large if not all(m.startswith(ALGEBRA) for m in found)] == []


def part_of(folder: str, module: str) -> str:
    """The module or folder directly in a folder that a module is or belongs to."""
    return ".".join(module.split(".")[: folder.count(".") + 2])


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


def loaded_by(statement: str) -> set[str]:
    """First parts of the names of all modules that a fresh process loads for a statement."""
    code = f"import sys; {statement}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return set(result.stdout.split())


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
        if len(lines) > FILE_LIMIT:
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


def names_by_identity(node: ast.AST) -> bool:
    """Whether code uses identities of objects, but as fields of a structure of C."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "id":
        return True
    inside = (n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.keyword))
    return any(map(names_by_identity, inside))


def kept_by_identity(module: ast.Module) -> Iterator[str]:
    """Functions that use identities and a dictionary of the module, which was empty at first, or
    that are cached."""
    containers = {
        name.id
        for node in module.body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        and re.fullmatch(r"\{\}|\w*[dD]ict\w*\(.*\)", ast.unparse(node.value or node))
        for name in ([node.target] if isinstance(node, ast.AnnAssign) else node.targets)
        if isinstance(name, ast.Name)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and names_by_identity(node):
            names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
            cached = any("cache" in ast.unparse(decorator) for decorator in node.decorator_list)
            if cached or names & containers:
                yield node.name


def test_no_cache_that_outlives_a_call_has_identities_as_keys() -> None:
    found = [(short(p), name) for p in sources(*CHAIN) for name in kept_by_identity(tree(p))]
    assert found == []


def test_a_cache_by_identity_is_found() -> None:
    code = "_known: dict[int, int] = {}\ndef f(x):\n  return _known.setdefault(id(x), 1)\n"
    assert list(kept_by_identity(ast.parse(code))) == ["f"]
    assert list(kept_by_identity(ast.parse(code.replace("id(x)", "x")))) == []


def asserts(function: ast.FunctionDef) -> bool:
    """Whether a function asserts and returns nothing; functions inside are not looked at."""
    inside, own = [*function.body], []
    while inside:
        node = inside.pop()
        if not isinstance(node, (ast.FunctionDef, ast.Lambda)):
            own.append(node)
            inside += ast.iter_child_nodes(node)
    if any(isinstance(n, (ast.Return, ast.Yield)) and n.value is not None for n in own):
        return False
    calls = (ast.unparse(node.func) for node in own if isinstance(node, ast.Call))
    return any(isinstance(node, ast.Assert) for node in own) or any(
        call.startswith(("np.testing.", "pytest.raises")) for call in calls
    )


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


def own_names(module: ast.Module) -> set[str]:
    """The names that a module defines or imports for others."""
    found: set[str] = set()
    for node in module.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(name.asname or name.name).partition(".")[0] for name in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in found if not name.startswith("_") and name != "annotations"}


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


def reads_environment(module: ast.Module) -> Iterator[int]:
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv"):
            yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            if {alias.name for alias in node.names} & {"environ", "environb", "getenv"}:
                yield node.lineno


def test_environment_variables_are_read_in_few_modules() -> None:
    found = [
        f"{short(path)}:{line}"
        for path in sources(*CHAIN)
        if short(path) not in SETTINGS
        for line in reads_environment(tree(path))
    ]
    assert found == []
    assert all(list(reads_environment(tree(ROOT / name))) for name in SETTINGS)


def compared_rows(module: ast.Module, names: frozenset[str]) -> Iterator[int]:
    """Lines that compare with the name of a row, or a row's `name` with anything.

    Looking a row's name up in a dict is no comparison.
    """
    for node in ast.walk(module):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            equality = any(isinstance(op, (ast.Eq, ast.NotEq)) for op in node.ops)
            literal = any(isinstance(s, (ast.Tuple, ast.List, ast.Set)) for s in sides)
            rows = (equality or literal) and any(is_row_name(side) for side in sides)
            if rows or any(mentions(side, names) for side in sides):
                yield node.lineno
        elif isinstance(node, ast.MatchValue) and mentions(node.value, names):
            yield node.lineno


def mentions(node: ast.expr, names: frozenset[str]) -> bool:
    """Whether an expression is the name of a row, or a collection that holds one."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value in names
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return any(mentions(item, names) for item in node.elts)
    return False


def is_row_name(node: ast.expr) -> bool:
    """Whether an expression is `....row.name` or `row.name`."""
    if not (isinstance(node, ast.Attribute) and node.attr == "name"):
        return False
    owner = node.value
    return (isinstance(owner, ast.Attribute) and owner.attr == "row") or (
        isinstance(owner, ast.Name) and owner.id == "row"
    )


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


def not_implemented(module: ast.Module) -> Iterator[str]:
    """Outermost class, or function, of every place that raises NotImplementedError."""

    def visit(node: ast.AST, inside: str) -> Iterator[str]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inside = inside or node.name
        if isinstance(node, ast.Raise) and node.exc is not None:
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if isinstance(raised, ast.Name) and raised.id == "NotImplementedError":
                yield inside
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    return visit(module, "")


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


def public_objects(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Functions and classes of a module's `__all__`, and the classes' own public methods."""
    for name in module.__all__:
        value = getattr(module, name)
        if not (inspect.isroutine(value) or inspect.isclass(value)):
            continue
        yield f"{module.__name__}.{name}", value
        if inspect.isclass(value):
            for method, member in vars(value).items():
                is_method = inspect.isroutine(member) or isinstance(member, property)
                if is_method and not method.startswith("_"):
                    yield f"{module.__name__}.{name}.{method}", member


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
