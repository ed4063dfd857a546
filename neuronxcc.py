"""What importing the first-generation API says: the name of its replacement.

A `neuronxcc` that is installed is imported instead: in one folder with this module Python takes a
package first, and further along the path this module looks for it.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

_elsewhere = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).parent]
_spec = PathFinder.find_spec(__name__, _elsewhere)

if _spec is None or _spec.loader is None or _spec.origin is None:
    raise ModuleNotFoundError(
        "No module named 'neuronxcc': neuronxcc.nki is the first generation of NKI, which opennki "
        "does not run. Write `import nki` (nki.language, nki.isa) instead; `nki migrate FILE` "
        "lists what to change (SDK nki/migration/index.rst)",
        name=__name__,
    )

sys.modules[__name__] = module_from_spec(_spec)
_spec.loader.exec_module(sys.modules[__name__])
