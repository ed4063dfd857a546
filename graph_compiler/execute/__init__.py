"""The host executor: steps (`graph_compiler.schedule`) run on this CPU.

`memory_plan` lets buffers share memory and gives the others places in one arena. `executable` makes
records of the steps for a native loop (`driver`), or reads them from disk by a digest of the
graph's structure, this code and the CPU. `teams` are the threads that share large calls.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graph_compiler.evaluate import LOOP_LIMIT, MOST_ITERATIONS, MOST_SEED, evaluate
from graph_compiler.hlo.arguments import count_argument, module_argument
from graph_compiler.inputs import checked_inputs
from nki.errors import named_arguments
from nki.settings import native_wanted, threads_wanted

if TYPE_CHECKING:
    import numpy as np

    from graph_compiler.execute.executable import Executable
    from graph_compiler.hlo.graph import Module

__all__ = ["execute", "prepare"]

_KEPT = 8
_recent: OrderedDict[tuple[Module, int], Executable] = OrderedDict()
_recent_order = threading.Lock()


def prepare(module: Module) -> Executable:
    """The executable of a module that `verify` accepts; of the last few modules it is kept.

    A module must not change after this. Threads that need a module at the same time may each make
    its executable; all get one of them. Raises NeuronError hlo-unknown-opcode, hlo-cycle.
    """
    from graph_compiler.execute.executable import Executable

    threads = threads_wanted()
    key = module, threads
    with _recent_order:
        found = _recent.get(key)
        if found is not None:
            _recent.move_to_end(key)
            return found
    made = Executable(module, threads=threads)
    with _recent_order:
        executable = _recent.setdefault(key, made)
        _recent.move_to_end(key)
        while len(_recent) > _KEPT:
            _recent.popitem(last=False)
    return executable


@named_arguments
def execute(
    module: Module,
    *inputs: Any,
    seed: int = 0,
    custom_calls: dict[str, Callable[..., Any]] | None = None,
    loop_limit: int = LOOP_LIMIT,
) -> list[np.ndarray[Any, Any]]:
    """The outputs of the entry computation on this host, a tuple's components one after another.

    Arguments and results are those of `graph_compiler.evaluate` for one rank, which computes them
    where native code is not available or not wanted (NKI_BACKEND=numpy). The first call compiles.
    Threads may execute at the same time, also the same module. Raises NeuronError as `evaluate`.

    Source of what operators compute: https://openxla.org/xla/operation_semantics

    >>> import numpy as np
    >>> from graph_compiler import execute, parse_text
    >>> text = "HloModule m\\nENTRY e {\\n x = f32[3] parameter(0)\\n ROOT r = f32[3] add(x, x)\\n}"
    >>> execute(parse_text(text), np.array([1, 2, 4], np.float32))
    [array([2., 4., 8.], dtype=float32)]
    """
    from simulator.native.codegen.library import library

    module_argument(module, "execute")
    if not native_wanted() or library() is None:
        return evaluate(
            module, *inputs, seed=seed, custom_calls=custom_calls, loop_limit=loop_limit
        )
    from graph_compiler.schedule.simplify import leaves

    count_argument(seed, "seed", 0, MOST_SEED)
    count_argument(loop_limit, "loop_limit", 0, MOST_ITERATIONS)
    values = leaves(tuple(checked_inputs(module, inputs)))
    return prepare(module)(values, seed, custom_calls, loop_limit)
