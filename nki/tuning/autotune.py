"""`nki.autotune`: a kernel that picks the fastest of its settings by itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import numpy as np

from isa.errors import NeuronError
from nki.errors import user_frames
from nki.expected import as_tuple, compare_all, expected_outputs
from nki.frameworks.arrays import as_numpy
from nki.kernel import Kernel, as_kernel
from nki.trace.call import TensorSpec, is_array
from nki.tuning import stored_times
from nki.tuning.measure import Measurement
from nki.tuning.sweep import Grid, Sweep, settings_of, sweep


class Tuned:
    """What `nki.autotune` returns: call it as the kernel, without the arguments that it chooses.

    `sweep` is the sweep of the last choice that was not found among those kept.

    >>> import nki, nki.language as nl
    >>> @nki.autotune({"pieces": [1, 2]}, reference=lambda a: a)
    ... @nki.jit
    ... def kernel(a, pieces):
    ...     return a
    >>> kernel.settings, kernel.kernel.function.__name__
    ([{'pieces': 1}, {'pieces': 2}], 'kernel')
    """

    def __init__(self, kernel: Kernel, choices: Grid, options: dict[str, Any]) -> None:
        functools.update_wrapper(self, kernel.function)
        self.kernel, self.settings, self.options = kernel, settings_of(choices), options
        self.sweep: Sweep | None = None

    @user_frames
    def __getitem__(self, cores: int | tuple[int]) -> Tuned:
        return Tuned(self.kernel[cores], self.settings, self.options)

    def on(self, target: str | None) -> Tuned:
        """The kernel tuned for `target`; raises unknown-target."""
        return Tuned(self.kernel.on(target), self.settings, self.options)

    @user_frames
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._settled(kwargs):
            return self.kernel(*args, **kwargs)
        return self.kernel(*args, **{**kwargs, **self.best(*args, **kwargs)})

    @user_frames
    def best(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The fastest setting for these arguments that agrees with the reference, kept by the
        content of kernel and reference, by shapes, values and target.

        Raises output-disagrees where none agrees, value-not-allowed where none compiles.
        """
        reference, tolerance = self.options["reference"], self.options["tolerance"]
        first = self.kernel.bound(args, {**kwargs, **self.settings[0]})
        judged = {"reference": reference, "tolerance": tolerance, "settings": self.settings}
        key = stored_times.content(self.kernel, {**first, "": judged}, "best")
        found = stored_times.read(key)
        if found is None:
            launch = sweep(
                self.kernel,
                self.settings,
                executor=self.options["executor"],
                processes=self.options["processes"],
            )
            self.sweep = launch(*args, **kwargs)
            best = self._first_right(self.sweep, args, kwargs)
            found = {"number": self.settings.index(best.setting)}
            stored_times.write(key, found)
        return self.settings[found["number"]]

    def _settled(self, kwargs: dict[str, Any]) -> bool:
        """Whether a call itself says what is to be chosen."""
        return all(name in kwargs for name in self.settings[0])

    def _first_right(
        self, found: Sweep, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Measurement:
        """The fastest setting whose results agree with the reference."""
        fastest, reference = found.best, self.options["reference"]
        if reference is None:
            return fastest
        wrong = []
        for one in found.ranked:
            problem = self._problem(args, {**kwargs, **one.setting})
            if problem is None:
                return one
            wrong.append(f"{one.setting}: {problem}")
        raise NeuronError(
            "output-disagrees",
            f"No setting of {self.kernel.function.__name__} agrees with the reference; {wrong[0]}",
        )

    def _problem(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """How results for these arguments differ from the reference's; None where they agree."""
        arguments = {name: _copy(v) for name, v in self.kernel.bound(args, kwargs).items()}
        tensors = {name: v for name, v in arguments.items() if isinstance(v, np.ndarray)}
        values = {name: v for name, v in arguments.items() if name not in tensors}
        reference = self.options["reference"]
        expected = expected_outputs(reference, {n: v.copy() for n, v in tensors.items()}, values)
        outputs = self.kernel(**arguments)
        for one in compare_all(as_tuple(outputs), as_tuple(expected), self.options["tolerance"]):
            if not one.agrees:
                return one.problem or f"{one.wrong:,} elements outside, worst {one.worst}"
        return None


def _copy(value: Any) -> Any:
    """An argument as the gate passes it on, so that kernels may write to it."""
    if isinstance(value, TensorSpec):
        generator = np.random.default_rng(0)
        from isa.dtypes import DTYPES

        return DTYPES[value.dtype].array(generator.standard_normal(value.shape))
    return as_numpy(value).copy() if is_array(value) else value


@user_frames
def autotune(
    choices: Grid,
    *,
    reference: Callable[..., Any] | None = None,
    tolerance: float | None = None,
    executor: Executor | None = None,
    processes: int | None = None,
) -> Callable[[Any], Tuned]:
    """Let a kernel choose the fastest of its settings: `@nki.autotune({"block": [1, 2, 4]})` above
    `@nki.jit`. Predicted times decide, as `nki.sweep` finds them.

    At the first call with new shapes, values or target all settings are timed. The results of the
    fastest are compared with those of `reference`, on the arguments of the call, within
    `tolerance`. By default that is the tolerance of the dtype, as `nki run --expect` has it. Where
    they differ the next one is tried. The choice is kept, on disk too. A call that gives the chosen
    arguments itself is not tuned. Raises output-disagrees where no setting is right.

    >>> import numpy as np, nki, nki.language as nl, nki.isa as nisa
    >>> @nki.autotune({"pieces": [16, 1]}, reference=lambda a: a, processes=1)
    ... @nki.jit(target="trn2")
    ... def copy(a, pieces):
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     for columns in range(0, a.shape[1], a.shape[1] // pieces):
    ...         part = nl.ds(columns, a.shape[1] // pieces)
    ...         nisa.dma_copy(dst=out[:, part], src=a[:, part])
    ...     return out
    >>> a = np.ones((128, 512), np.float32)
    >>> copy(a).shape, copy.best(a)
    ((128, 512), {'pieces': 1})
    """
    options = {
        "reference": reference,
        "tolerance": tolerance,
        "executor": executor,
        "processes": processes,
    }
    return lambda kernel: Tuned(as_kernel(kernel), choices, options)
