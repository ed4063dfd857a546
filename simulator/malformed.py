"""Programs that no compiler wrote: what they break becomes an error of the catalogue."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from isa.errors import NeuronError
from isa.files.encoding import MALFORMED

P = ParamSpec("P")
R = TypeVar("R")


def refuses_malformed(function: Callable[P, R]) -> Callable[P, R]:
    """A function that raises NeuronError program-malformed where a program makes it raise what
    Python raises for values that do not fit. The cause stays with the error, as it may as well be
    a defect."""

    @wraps(function)
    def refusing(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except NeuronError:
            raise
        except MemoryError as error:
            raise NeuronError(
                "program-malformed", "it needs more memory than this machine has"
            ) from error
        except (*MALFORMED, AssertionError) as error:
            raise NeuronError(
                "program-malformed",
                f"its instructions do not fit together ({type(error).__name__}: {error})",
            ) from error

    return refusing
