"""What tests of the repository's own source read from it: files, imports, names."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]

CHAIN = tuple(
    name
    for name in ("isa", "simulator", "nki", "graph_compiler")
    if (ROOT / name / "__init__.py").is_file()
)
"""Every package may import those before it."""

TABLES = ("isa/operations/", "isa/machine/")
"""Where the names of rows may be spelled out."""


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


def part_of(folder: str, module: str) -> str:
    """The module or folder directly in a folder that a module is or belongs to."""
    return ".".join(module.split(".")[: folder.count(".") + 2])


def loaded_by(statement: str) -> set[str]:
    """First parts of the names of all modules that a fresh process loads for a statement."""
    code = f"import sys; {statement}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return set(result.stdout.split())


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


def reads_environment(module: ast.Module) -> Iterator[int]:
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv"):
            yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            if {alias.name for alias in node.names} & {"environ", "environb", "getenv"}:
                yield node.lineno


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
