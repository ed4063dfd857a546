"""Calls of public functions with arguments that they do not have, as errors of the catalogue.

Python's own message neither lists what the function takes nor says what was meant.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Collection
from typing import Any, ParamSpec, TypeVar

from isa.errors import NeuronError

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_Function = Callable[..., Any]

_MeantBy = Callable[[str, Collection[str]], str]


def close_to(keyword: str, known: Collection[str]) -> str:
    """The sentence that says what a misspelt keyword means, with a space behind it; "" for none.

    >>> close_to("nativ", ["check", "native"])
    'Did you mean native=? '
    """
    if not difflib.get_close_matches(keyword, known):
        return ""
    best = max(known, key=lambda name: difflib.SequenceMatcher(None, name, keyword).ratio())
    return f"Did you mean {best}=? "  # the first of those that are equally close


def refused_call(
    error: TypeError, function: _Function, meant_by: _MeantBy = close_to
) -> NeuronError | None:
    """The error where Python refused the call of `function` by the decorated entry that caught
    `error`; None for what is raised further in."""
    traceback = error.__traceback__
    if isinstance(error, NeuronError) or traceback is None or traceback.tb_next is not None:
        return None
    return wrong_call(error, function, meant_by)


def named_arguments(
    function: Callable[_Parameters, _Result],
    explained: Callable[[TypeError, _Function], NeuronError | None] = refused_call,
) -> Callable[_Parameters, _Result]:
    """Decorates a public function: a call with other arguments than it has is an error of the
    catalogue, which says what was meant. Everything else passes as it is."""

    @functools.wraps(function)
    def entry(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if (found := explained(error, function)) is None:
                raise
            try:
                raise found from None
            finally:
                found = None  # its traceback has this frame

    return entry


def called_name(error: TypeError) -> str | None:
    """The qualified name of the function whose arguments Python refused; None for other errors."""
    found = _refused(error)
    return None if found is None else found[0]


def wrong_call(
    error: TypeError, function: _Function, meant_by: _MeantBy = close_to
) -> NeuronError | None:
    """The error of the catalogue for a refused call of `function`; None for other errors.
    `meant_by` is the sentence about an unknown keyword among those that are known.

    >>> def run(program, native=True): ...
    >>> error = wrong_call(TypeError("run() got an unexpected keyword argument 'nativ'"), run)
    >>> error.code, error.hint
    ('unknown-argument', 'Did you mean native=? It takes program, native.')
    """
    refused = _refused(error)
    if refused is None:
        return None
    qualified, say, words = refused
    owner, _, name = qualified.rpartition(".")
    if name == "__init__":
        name = owner.rpartition(".")[2]
    return say("the function" if name.startswith("_") else name, function, words, meant_by)


def _refused(error: TypeError) -> tuple[str, Callable[..., NeuronError], str] | None:
    """The qualified name in Python's message, what to say of it, and what the message lists."""
    for pattern, say in _MESSAGES:
        if match := pattern.match(str(error)):
            return match[1].removesuffix(".__call__"), say, match[2]
    return None


def _unknown(name: str, function: _Function, keyword: str, meant_by: _MeantBy) -> NeuronError:
    known = _parameters(function)
    taken = ", ".join(known) or "no arguments"
    hint = f"{meant_by(keyword, known)}It takes {taken}.{_for_kernel(name, known)}"
    return NeuronError("unknown-argument", f"{name}() has no argument {keyword!r}", hint=hint)


def _missing(name: str, function: _Function, missing: str, _: _MeantBy) -> NeuronError:
    hint = f"It is {name}{_signature(function)}."
    return NeuronError("missing-argument", f"{name}() needs {missing}", hint=hint)


def _too_many(name: str, function: _Function, _given: str, _: _MeantBy) -> NeuronError:
    known = _parameters(function)
    what = f"{name}() takes {len(known)} arguments at most, and those after `*` by name only"
    hint = f"It is {name}{_signature(function)}.{_for_kernel(name, known)}"
    return NeuronError("unknown-argument", what, hint=hint)


_MESSAGES: tuple[tuple[re.Pattern[str], Callable[..., NeuronError]], ...] = (
    (re.compile(r"([\w.<>]+)\(\) got an unexpected keyword argument '(\w+)'"), _unknown),
    (re.compile(r"([\w.<>]+)\(\) missing \d+ required [\w-]+ arguments?: (.*)"), _missing),
    (re.compile(r"([\w.<>]+)\(\) takes .*positional arguments? but (\d+)"), _too_many),
)


def _for_kernel(name: str, known: list[str]) -> str:
    """Where the arguments of a kernel go that a function was given beside the kernel."""
    if known[:1] != ["kernel"]:
        return ""
    return f" Arguments of the kernel go to what it returns: {name}(kernel)(...)."


def _signature(function: _Function) -> str:
    """The parameters of a function as text, without annotations."""
    signature = inspect.signature(function)
    plain = [
        parameter.replace(annotation=parameter.empty)
        for name, parameter in signature.parameters.items()
        if name != "self"
    ]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


def _parameters(function: _Function) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]
