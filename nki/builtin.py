"""`nki.builtin`: what kernels may call without an import.

Test harnesses of NKI 0.3 put this module into Python's `builtins` under the name `builtin`. A
kernel here is ordinary Python, so these are Python's own.
"""

import builtins

_NAMES = (
    "abs",
    "all",
    "any",
    "enumerate",
    "float",
    "int",
    "len",
    "max",
    "min",
    "print",
    "range",
    "sum",
    "zip",
)

globals().update({name: getattr(builtins, name) for name in _NAMES})
