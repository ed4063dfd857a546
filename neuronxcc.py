"""What importing the first-generation API says: the name of its replacement.

A `neuronxcc` that is installed is imported instead: in one folder with this module Python takes a
package first, and further along the path this module looks for it. Without one, the types that
annotate kernels can be imported, `neuronxcc.nki.typing`: kernels of today's API in public libraries
name them (nki-library 2.29, core/router_topk/router_topk.py). They are those of `nki.typing`.
"""

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

_TYPES = "neuronxcc.nki.typing"


def _refused(name: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(
        f"No module named {name!r}: neuronxcc.nki is the first generation of NKI, which opennki "
        "does not run. Write `import nki` (nki.language, nki.isa) instead; `nki migrate FILE` "
        "lists what to change (SDK nki/migration/index.rst)",
        name=name,
    )


def _asked_for() -> set[str]:
    """The modules that the import statements which run now name: Python imports the packages around
    a module first, without a word about the module itself."""
    names = set()
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name == "_find_and_load":
            names.add(str(frame.f_locals.get("name")))
    return names


class _TypesAlone(ModuleType):
    """A package of which nothing is there but what leads to the types."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(f"{self.__name__}.{name}")


def _refuse(name: str) -> NoReturn:
    error = _refused(name)
    raise AttributeError(str(error)) from error


class _Others:
    """An import finder that finds no other module of these packages, and says why."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name.startswith("neuronxcc.") and isinstance(sys.modules["neuronxcc"], _TypesAlone):
            raise _refused(name)


_elsewhere = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).parent]
_spec = PathFinder.find_spec(__name__, _elsewhere)

if _spec is not None and _spec.loader is not None and _spec.origin is not None:
    sys.modules[__name__] = module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[__name__])
elif _TYPES in _asked_for():
    _packages = [_TypesAlone("neuronxcc"), _TypesAlone("neuronxcc.nki")]
    sys.modules.update((package.__name__, package) for package in _packages)
    sys.modules[_TYPES] = _packages[1].typing = import_module("nki.typing")
    _packages[0].nki = _packages[1]
    sys.meta_path.append(_Others)
else:
    raise _refused(__name__)
