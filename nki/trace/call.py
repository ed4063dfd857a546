"""The arguments of a kernel: which are tensors, what is known of them, how they nest."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import sys
from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np

from isa.affine import Polynomial, Symbol, polynomial
from isa.dtypes import normalise
from isa.errors import NeuronError
from nki.errors import user_frames
from nki.ir.locations import author_location, error_location, resolve
from nki.ir.views.objects import NKIObject
from nki.ir.views.refused import NoNumber
from nki.keywords import meant_by
from nki.language.python_mistakes import translated
from nki.precision import stored


@dataclasses.dataclass(frozen=True, slots=True, init=False)
class TensorSpec:
    """A tensor argument without its data: shape (ints, or forms over `symbol`s), dtype, name.

    Raises dtype-not-allowed and value-not-allowed.

    >>> TensorSpec((128, 512), "float32").dtype
    'float32'
    """

    shape: tuple[Any, ...]
    dtype: str
    name: str = ""

    @user_frames
    def __init__(self, shape: Any, dtype: Any, name: str = "") -> None:
        shape = shape if isinstance(shape, (tuple, list)) else (shape,)
        sizes = []
        for size in shape:
            if not isinstance(size, Polynomial):
                try:
                    size = size.__index__()
                except AttributeError:
                    size = -1
                if size < 0:
                    raise NeuronError(
                        "value-not-allowed",
                        what=f"shape {tuple(shape)} of a tensor specification",
                        why="Sizes are integers of at least 0, or forms over nki.symbol.",
                        hint='For example nki.TensorSpec((nki.symbol("M", max=8192), 512), '
                        "nl.float32).",
                    )
            sizes.append(size)
        object.__setattr__(self, "shape", tuple(sizes))
        object.__setattr__(self, "dtype", normalise(dtype))
        object.__setattr__(self, "name", name)


@user_frames
def symbol(
    name: str,
    max: int | None = None,
    *,
    min: int | None = None,
    multiple_of: int = 1,
) -> Polynomial:
    """A launch symbol: a size that is known when a compiled kernel is launched.

    Its values are the multiples of `multiple_of` from `min` (default: `multiple_of`) to `max`. Use
    it in the shape of a `TensorSpec`; equal arguments give the same symbol.

    Raises value-not-allowed for a name that is no identifier, and where no size is left.

    >>> str(symbol("M", max=8192, multiple_of=128) // 128 * 64)
    'M//2'
    """
    try:
        return polynomial(Symbol(name, max, min, multiple_of))
    except NeuronError as error:
        error.location = resolve(author_location())
        raise


def refuse_unknown(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise unknown-argument for a keyword of a public function that is none of `known`."""
    known = list(known)
    for name in given:
        if name not in known:
            raise NeuronError(
                "unknown-argument",
                what=f"{function}() has no argument {name!r}",
                why="Options that are not known are not ignored: a misspelt one would do nothing.",
                hint=f"{meant_by(name, known)}It takes {', '.join(known)}.",
                location=resolve(author_location()),
            )


def bind_arguments(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: Collection[str] = (),
) -> dict[str, Any]:
    """The arguments by parameter name, defaults included. `options`: keywords that the launch takes
    beside them, which may have been meant. Raises missing- and unknown-argument."""
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as problem:
        names = list(signature.parameters)
        unknown = [name for name in kwargs if name not in names]
        code = "missing-argument" if "missing" in str(problem) else "unknown-argument"
        hint = f"It is {function.__name__}{signature}."
        if unknown:
            hint = meant_by(unknown[0], [*names, *options]) + hint
        raise NeuronError(
            code, what=f"{function.__name__}(): {problem}", why="", hint=hint
        ) from None
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    if "jax" not in sys.modules:
        return arguments
    return {
        name: map_leaves(given, name, is_jax_dtype, _named) for name, given in arguments.items()
    }


def kernel_error(error: Exception) -> NeuronError | None:
    """What ends a kernel's function, as an error of the catalogue with the innermost line of the
    author's; None for an exception of the kernel's own."""
    found = error if isinstance(error, NeuronError) else translated(error)
    if found is not None and found.location is None:
        found.location = resolve(error_location(error))
    return found


def is_array(value: Any) -> bool:
    """Whether an argument is an array (NumPy, or of a library that converts to it)."""
    if isinstance(value, np.ndarray):
        return True
    return (
        hasattr(type(value), "__array__")  # not of the value: some answer to every name
        and hasattr(value, "shape")
        and hasattr(value, "dtype")
        and not isinstance(value, (np.generic, type, NoNumber))
    )


def is_jax_dtype(value: Any) -> bool:
    """Whether an argument is a scalar type of jax, as `jnp.bfloat16` is."""
    return isinstance(value, type) and type(value).__module__.partition(".")[0] == "jax"


def _named(value: Any, _: str) -> str:
    """The data type of NKI that a scalar type of jax is in a kernel (SDK
    release-notes/components/nki.rst, 0.4.0, "JAX dtype support")."""
    return normalise(value)


def map_tensors(value: Any, name: str, function: Callable[[Any, str], Any]) -> Any:
    """`value` with every array and `TensorSpec` in it replaced by function(it, its name), as
    `map_leaves` does; a `TensorSpec` may bring a name."""

    def named(tensor: Any, place: str) -> Any:
        own = tensor.name if isinstance(tensor, TensorSpec) else ""
        return function(tensor, own or place)

    return map_leaves(value, name, _is_tensor, named)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, TensorSpec) or is_array(value)


def map_leaves(
    value: Any, name: str, wanted: Callable[[Any], bool], function: Callable[[Any, str], Any]
) -> Any:
    """`value` with everything in it that is `wanted` replaced by function(it, its name).

    Walks tuples, lists, dicts, dataclasses and `nl.NKIObject`s; containers without such values are
    returned as they are. Names are parameter names with indices: "weights[0]", "config.bias".
    """
    if wanted(value):
        return function(value, name)
    if isinstance(value, (tuple, list)):
        items = [map_leaves(item, f"{name}[{i}]", wanted, function) for i, item in enumerate(value)]
        if all(new is old for new, old in zip(items, value)):
            return value
        if hasattr(value, "_fields"):
            return type(value)(*items)
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        entries = {k: map_leaves(v, f"{name}[{k!r}]", wanted, function) for k, v in value.items()}
        return value if all(entries[k] is v for k, v in value.items()) else entries
    fields = _fields(value)
    if not fields:
        return value
    changed = {
        field: new
        for field, old in fields.items()
        if (new := map_leaves(old, f"{name}.{field}", wanted, function)) is not old
    }
    if not changed:
        return value
    result = copy.copy(value)
    for field, new in changed.items():
        object.__setattr__(result, field, new)
    return result


def _fields(value: Any) -> dict[str, Any]:
    """The attributes of a configuration object; none for anything else."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return dict(vars(value)) if isinstance(value, NKIObject) and hasattr(value, "__dict__") else {}


def arrays_in(arguments: dict[str, Any]) -> list[Any]:
    """The arrays among the arguments, in parameter order, those in containers included."""
    return [value for value, _ in tensors_in(arguments) if not isinstance(value, TensorSpec)]


def tensors_in(arguments: dict[str, Any]) -> list[tuple[Any, str]]:
    """Every array and `TensorSpec` with its name, in parameter order."""
    found: list[tuple[Any, str]] = []

    def keep(value: Any, name: str) -> Any:
        found.append((value, name))
        return value

    for name, value in arguments.items():
        map_tensors(value, name, keep)
    return found


def refuse_without_data(tensors: Iterable[tuple[Any, str]]) -> None:
    """Raise input-mismatch for the first of named tensors that is a specification."""
    for value, name in tensors:
        if isinstance(value, TensorSpec):
            raise NeuronError(
                "input-mismatch",
                f"{name} is a TensorSpec, which has no data to compute with",
                why="What a kernel computes takes arrays; shapes and data types are enough to "
                "compile and to time it.",
                hint=f"Pass an array of shape {shape_words(value)}. nki.profile, nki.benchmark "
                "and nki.compile take specifications.",
            )


def sizes_of(value: Any, name: str) -> tuple[int, ...]:
    """The shape of an array or a specification; raises input-mismatch where sizes are open."""
    if all(type(size) is not Polynomial for size in value.shape):
        return tuple(value.shape)
    raise NeuronError(
        "input-mismatch",
        f"{name} has the shape {shape_words(value)}, whose sizes a launch decides",
        why="A time is that of one launch.",
        hint="Give sizes as numbers, or pass an array.",
    )


def shape_words(value: Any) -> str:
    """A shape as authors write it, symbols by name."""
    return f"({', '.join(map(str, value.shape))}{',' if len(value.shape) == 1 else ''})"


def spec_of(value: Any, name: str) -> TensorSpec:
    """The specification of an array, or the given one."""
    if isinstance(value, TensorSpec):
        return dataclasses.replace(value, name=name, dtype=stored(value.dtype))
    return TensorSpec(tuple(value.shape), stored(_dtype_of(value, name)), name)


def _dtype_of(array: Any, name: str) -> str:
    try:
        return normalise(array.dtype)
    except NeuronError as error:
        raise NeuronError(
            error.code,
            what=f"{name} is {array.dtype}, which is no data type of NKI",
            why=error.why,
            hint=f"Convert {name} before the call: to float32 in place of float64.",
        ) from None


def call_arguments(
    function: Callable[..., Any], arguments: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments from a dict by parameter name."""
    bound = inspect.BoundArguments(inspect.signature(function), arguments)  # type: ignore[arg-type]
    return bound.args, bound.kwargs
