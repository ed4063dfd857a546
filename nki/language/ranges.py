"""Loops: over ints they unroll; over launch symbols and registers they stay rolled."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from isa.affine import Affine
from isa.errors import NeuronError
from isa.operations.control import RegisterMove
from nki.ir.builder.loops import check_step, loop_bound
from nki.ir.context import Location, NkiInstruction, caller, current
from nki.ir.nodes import Register
from nki.ir.views.indexing import index_form
from nki.superseded import hint


def affine_range(start: Any, stop: Any = None, step: int = 1) -> Iterable[Any]:
    """start, start + step, ... below stop, as Python's `range`.

    Over ints the loop unrolls while tracing. A bound that depends on a launch symbol keeps it
    rolled: the body is traced for one general iteration, and for a last partial one when the
    number of iterations is rounded up, as in `affine_range((M + 127) // 128)`.

    Raises value-not-allowed (bounds, step), register-arithmetic, loop-carried-state.
    Source: SDK nki/api/nki/language/__init__.py (affine_range)

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def doubled(a):
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     for i in nl.affine_range(a.shape[0] // 128):
    ...         tile = nl.load(a[nl.ds(i * 128, 128), :])
    ...         nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
    ...         nl.store(out[nl.ds(i * 128, 128), :], tile)
    ...     return out
    >>> rows = nki.symbol("M", max=1024, multiple_of=128)
    >>> compiled = nki.compile(doubled, nki.TensorSpec((rows, 2), nl.float32))
    >>> [compiled(np.ones((size, 2), np.float32)).sum().item() for size in (128, 512)]
    [512.0, 2048.0]
    """
    return _range("nki.language.affine_range", start, stop, step, caller())


def sequential_range(start: Any, stop: Any = None, step: int = 1) -> Iterable[Any]:
    """The same as `affine_range`; iterations are in order either way.

    Raises what `affine_range` raises.
    Source: SDK nki/api/nki/language/__init__.py (sequential_range)

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def running_sums(a):
    ...     tile = nl.load(a)
    ...     for i in nl.sequential_range(1, a.shape[1]):
    ...         column, before = tile[:, nl.ds(i, 1)], tile[:, nl.ds(i - 1, 1)]
    ...         nisa.tensor_tensor(dst=column, data1=column, data2=before, op=nl.add)
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, tile)
    ...     return out
    >>> print(running_sums(np.array([[1, 2, 3, 4]], np.float32)))
    [[ 1.  3.  6. 10.]]
    """
    return _range("nki.language.sequential_range", start, stop, step, caller())


def static_range(start: Any, stop: Any = None, step: int = 1) -> Iterable[Any]:
    """The same as `affine_range`.

    Raises what `affine_range` raises.
    Source: SDK nki/api/nki/language/__init__.py (static_range)

    >>> import nki, nki.language as nl
    >>> @nki.jit
    ... def kernel():
    ...     print(list(nl.static_range(1, 8, 3)))
    >>> kernel()
    [1, 4, 7]
    """
    return _range("nki.language.static_range", start, stop, step, caller())


def _range(name: str, start: Any, stop: Any, step: Any, location: Location) -> Iterable[Any]:
    lower, upper = (0, start) if stop is None else (start, stop)
    if lower.__class__ is int and upper.__class__ is int and step.__class__ is int:
        hint(name)
        return range(lower, upper, step)
    bounds = [index_form(bound, "a loop bound") for bound in (lower, upper, step)]
    if all(bound.__class__ is int for bound in bounds):
        hint(name)
        return range(*bounds)
    if any(_has_register(bound) for bound in (lower, upper)):
        raise NeuronError(
            "register-arithmetic",
            what="a register bounds a loop that unrolls while tracing",
            why="The number of iterations is unknown before the kernel runs.",
            hint="Use nl.dynamic_range, which stays a loop on the device.",
        )
    check_step(bounds[2])
    return current("a loop over a launch symbol").symbolic_range(
        bounds[0], bounds[1], bounds[2], location
    )


def _has_register(bound: Any) -> bool:
    """Whether the bound's value exists at run time only. Loop variables of known range count too: a
    rolled loop's trip count may not change from one outer iteration to the next."""
    return isinstance(bound, (Register, Affine))


def dynamic_range(start: Any, stop: Any = None, step: int = 1) -> Iterable[Any]:
    """A loop on the device over start, start + step, ... below stop.

    Bounds are ints, launch symbols or registers, read once, when the loop begins. The loop
    variable is a register: use it as `scalar_offset`, or as the start of `nl.ds`.

    Raises value-not-allowed (bounds beyond 32 bits, step), loop-carried-state.
    Source: SDK nki/api/nki/language/__init__.py (dynamic_range)

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def first_rows(a, count):  # copies count[0, 0] rows, zero the others
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.zeros(a.shape, dtype=a.dtype))
    ...     stop = nisa.register_alloc()
    ...     nisa.register_load(stop, nl.load(count))
    ...     for i in nl.dynamic_range(stop):
    ...         nl.store(out[nl.ds(i, 1), :], nl.load(a[nl.ds(i, 1), :]))
    ...     return out
    >>> a = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    >>> print(first_rows(a, np.array([[2]], np.int32)))
    [[1. 2.]
     [3. 4.]
     [0. 0.]]
    """
    hint("nki.language.dynamic_range")
    return _dynamic(start, stop, step, caller())


def _dynamic(start: Any, stop: Any, step: Any, location: Location) -> Iterable[Any]:
    lower, upper = (0, start) if stop is None else (start, stop)
    step = int(step) if isinstance(step, np.integer) else step
    check_step(step)
    return current("nl.dynamic_range").dynamic_range(
        loop_bound(lower), loop_bound(upper), step, location
    )


def _check_body(loop: str, body_fun: Any, given: str) -> None:
    """Raise NeuronError unless a body can be called with the one argument that it gets."""
    try:
        inspect.signature(body_fun).bind(None)
    except ValueError:
        return  # a function without a signature
    except TypeError as error:
        raise NeuronError(
            "value-not-allowed",
            what=f"the body of {loop} is {body_fun!r}: {error}",
            why=f"The body is a function that gets {given}.",
            hint="Give it one parameter: def body(i): ...",
        ) from None


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any], Any], step: int = 1) -> None:
    """`for i in nl.dynamic_range(lower, upper, step): body_fun(i)`, where the body returns nothing.

    Raises value-not-allowed (bounds, step, body), loop-carried-state.
    Source: SDK nki/api/nki/language/__init__.py (fori_loop)

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def incremented(a):
    ...     tile = nl.load(a)
    ...     def body(i):
    ...         nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    ...     nl.fori_loop(0, 5, body)
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, tile)
    ...     return out
    >>> print(incremented(np.zeros((1, 2), np.float32)))
    [[5. 5.]]
    """
    location = caller()
    _check_body("fori_loop", body_fun, "the value of the iteration")
    for index in _dynamic(lower, upper, step, location):
        result = body_fun(index)
        if not (result is None or isinstance(result, NkiInstruction)):  # that of a lambda
            raise NeuronError(
                "value-not-allowed",
                what=f"the body of fori_loop returned {result!r}",
                why="The body cannot return a value (SDK nki/migration/index.rst, Rules for "
                "migrated loops).",
                hint="Write what an iteration leaves to a tensor or register made before the loop.",
            )


def while_loop(init: Any, body_fun: Callable[[Any], Any]) -> None:
    """r = init; while r != 0: r = body_fun(r), on the device, with r a register.

    `body_fun` gets the condition register and returns the next one.

    Raises value-not-allowed (init, body), loop-carried-state.
    Source: SDK nki/api/nki/language/__init__.py (while_loop)

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def doubled_often(a, times):
    ...     tile, left = nl.load(a), nl.load(times)
    ...     register = nisa.register_alloc()
    ...     nisa.register_load(register, left)
    ...     def body(condition):
    ...         nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
    ...         nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1)
    ...         nisa.register_load(condition, left)
    ...         return condition
    ...     nl.while_loop(register, body)
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, tile)
    ...     return out
    >>> print(doubled_often(np.ones((1, 2), np.float32), np.array([[3]], np.int32)))
    [[8. 8.]]
    """
    context = current("nl.while_loop")
    location = caller()
    if not isinstance(init, Register):
        raise NeuronError(
            "value-not-allowed",
            what=f"the condition of while_loop is {init!r}",
            why="The condition is a register.",
            hint="Make one with nisa.register_alloc.",
        )
    _check_body("while_loop", body_fun, "the register of the condition")
    condition = context.register_alloc(init, location)
    while context.while_condition(condition, location, sys._getframe()):
        following = body_fun(condition)
        if not isinstance(following, Register):
            raise NeuronError(
                "value-not-allowed",
                what=f"the body of while_loop returned {following!r}",
                why="The body returns the register that holds the next condition.",
                hint="Return the register after nisa.register_load or nisa.register_move.",
            )
        if following is not condition:
            context.record(RegisterMove, (condition, following), location)
