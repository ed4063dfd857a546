"""Running a kernel on several ranks in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nki.errors import user_frames
from nki.kernel import as_kernel, simulate
from nki.ranks.world import run_ranks


@user_frames
def simulate_ranks(kernel: Any, arguments: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Run a kernel on several ranks in this process; the results of each, as a call returns them.

    `arguments`: for each rank its arguments by parameter name. The ranks run eagerly, operation by
    operation, each in a thread; collectives exchange data between them, and reduce in the order of
    the ranks in their group. Raises the error of the first rank that failed; deadlock when a rank
    ends while others wait for it.

    >>> import numpy as np, nki, nki.collectives as ncc, nki.isa as nisa, nki.language as nl
    >>> @nki.jit(platform_target="trn2")
    ... def total(a, group):
    ...     src = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nisa.dma_copy(dst=src, src=a)
    ...     ncc.all_reduce(srcs=[src], dsts=[out], replica_group=group, op=nl.add)
    ...     return out
    >>> group = ncc.ReplicaGroup([[0, 1]])
    >>> ones = np.ones((1, 2), np.float32)
    >>> ncc.simulate_ranks(total, [{"a": ones, "group": group}, {"a": 2 * ones, "group": group}])
    [array([[3., 3.]], dtype=float32), array([[3., 3.]], dtype=float32)]
    """
    return run_ranks(simulate(as_kernel(kernel), mode="eager"), arguments)
