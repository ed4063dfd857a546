"""Registers, barriers, the storage marker, and printing."""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.enums import SEQUENCERS, DmaEngine, Engine
from isa.fields import (
    ANY_MEMORY,
    ANY_PARTITION,
    ON_CHIP,
    REGISTER,
    SBUF,
    SBUF_OR_HBM,
    SHARED_HBM,
    Attribute,
    Kind,
    Read,
    Update,
    Write,
)
from isa.machine import control
from isa.spec import Instruction, Meeting, Operation


class RegisterMove(Operation):
    """Register dst = src, a number or another register.

    Raises value-not-allowed (dst is no register, or the variable of a loop).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def answer():
        ...     first, second = nisa.register_alloc(), nisa.register_alloc()
        ...     nisa.register_move(first, 42)
        ...     nisa.register_move(second, first)
        ...     tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        ...     nisa.register_store(tile, second)
        ...     out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> print(answer())
        [[42]]
    """

    name = "register_move"
    machine = control.RegisterMove
    engines = SEQUENCERS
    dst = Attribute(kind=Kind.register)
    src = Attribute(kind=Kind.value, limits=REGISTER)


class RegisterLoad(Operation):
    """Register dst = the one element of src.

    Raises shape-mismatch (more than one element), value-not-allowed (dst is no register, or the
    variable of a loop).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def one_row(a, row):  # the row is known when the kernel runs
        ...     index = nisa.register_alloc()
        ...     nisa.register_load(index, nl.load(row))
        ...     tile = nl.ndarray((1, 3), dtype=a.dtype, buffer=nl.sbuf)
        ...     nisa.dma_copy(dst=tile, src=a[nl.ds(index, 1), :])
        ...     out = nl.ndarray((1, 3), dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> a = np.arange(12, dtype=np.float32).reshape(4, 3)
        >>> print(one_row(a, np.array([[2]], np.int32)))
        [[6. 7. 8.]]
    """

    name = "register_load"
    machine = control.RegisterLoad
    engines = SEQUENCERS
    rules = (rules.operands.register_element("src"),)


class RegisterStore(Operation):
    """The one element of dst = register src.

    Raises shape-mismatch (more than one element).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def last_index(count):
        ...     stop = nisa.register_alloc()
        ...     nisa.register_load(stop, nl.load(count))
        ...     tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        ...     for i in nl.dynamic_range(0, stop, 2):
        ...         nisa.register_store(tile, i)
        ...     out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> print(last_index(np.array([[7]], np.int32)))  # of 0, 2, 4, 6
        [[6]]
    """

    name = "register_store"
    engines = SEQUENCERS
    dst = Write(SBUF_OR_HBM)
    src = Attribute(kind=Kind.value)
    rules = (rules.operands.register_element("dst"),)

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        return (Instruction(control.RegisterStore, Engine.sync, values),)


class RegisterAlu(Operation):
    """Register `dst = left <op> right`. The lowering's own: no public function."""

    name = "register_alu"
    machine = control.RegisterAlu
    engines = SEQUENCERS
    public = False


class CoreBarrier(Operation):
    """Every core in `cores` waits for the others; orders all their accesses to shared HBM.

    Raises value-not-allowed (cores other than (0, 1)), generation (before gen3); deadlock when
    one core does not come.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def swapped(a):
        ...     mine, other = nl.program_id(0), 1 - nl.program_id(0)
        ...     shared = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=shared[nl.ds(mine, 1), :], src=a[nl.ds(mine, 1), :])
        ...     nisa.core_barrier(data=shared, cores=(0, 1))
        ...     nisa.dma_copy(dst=out[nl.ds(mine, 1), :], src=shared[nl.ds(other, 1), :])
        ...     return out
        >>> print(swapped[2](np.array([[1, 2], [3, 4]], np.float32)))
        [[3. 4.]
         [1. 2.]]
    """

    name = "core_barrier"
    machine = control.CoreBarrier
    engines = SEQUENCERS
    generations = (3, 4)
    minimum_cores = 2
    data = Update(ON_CHIP | SHARED_HBM)
    cores = Attribute(kind=Kind.integers)
    engine = Attribute(kind=Kind.engine, choices=SEQUENCERS, default=Engine.gpsimd)
    rules = (rules.movement.barrier_cores,)
    meets = True

    @classmethod
    def meeting(cls, values: tuple[Any, ...], core: int) -> Meeting:
        return control.CoreBarrier.meeting(values[:2], core)


class Sendrecv(Operation):
    """This core's src goes to the other core's dst, and the other's src comes to this one's dst.

    Both cores call it. Calls pair by pipe_id, and those of one pipe by their order. Neither core
    goes on to what touches dst or overwrites src, to the next call with the same pipe_id or to a
    barrier before both have come; calls with other pipe_ids do not wait for it.
    dma_engine.gpsimd_dma, for small tiles, moves at most 1024, 512 or 256 bytes a partition of
    elements of 4, 2 or 1 bytes.

    Raises shape-mismatch, dtype-not-allowed, wrong-memory, value-not-allowed (a rank other than 0
    and 1), tile-limit (gpsimd_dma), generation (before gen3); core-mismatch when the partner's tile
    or ranks do not fit, and deadlock when it does not come.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def swapped(a):
        ...     mine, other = nl.program_id(0), 1 - nl.program_id(0)
        ...     tile = nl.load(a[nl.ds(mine, 1), :])
        ...     received = nl.ndarray(tile.shape, dtype=a.dtype, buffer=nl.sbuf)
        ...     nisa.sendrecv(
        ...         src=tile, dst=received, send_to_rank=other, recv_from_rank=other, pipe_id=0
        ...     )
        ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out[nl.ds(mine, 1), :], src=received)
        ...     return out
        >>> print(swapped[2](np.array([[1, 2], [3, 4]], np.float32)))
        [[3. 4.]
         [1. 2.]]
    """

    name = "sendrecv"
    engines = (Engine.gpsimd,)
    generations = (3, 4)
    minimum_cores = 2
    meets = True
    apart = True
    src = Read(SBUF, starts=ANY_PARTITION)
    dst = Write(SBUF, starts=ANY_PARTITION)
    send_to_rank = Attribute(kind=Kind.integer)
    recv_from_rank = Attribute(kind=Kind.integer)
    pipe_id = Attribute(kind=Kind.integer)
    dma_engine = Attribute(kind=Kind.dma_engine, default=DmaEngine.dma)
    rules = (
        rules.operands.same_dtype("dst", "src"),
        rules.operands.same_shape("dst", "src"),
        rules.movement.exchange_ranks,
        rules.movement.exchange_bytes,
    )

    @classmethod
    def meeting(cls, values: tuple[Any, ...], core: int) -> Meeting:
        return control.SendReceive.meeting(values, core)

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        src, dst, *rest = values
        return (Instruction(control.SendReceive, Engine.gpsimd, (dst, src, *rest)),)


class StorageBegin(Operation):
    """An allocation begins: its elements hold nothing yet. Costs no time."""

    name = "storage_begin"
    machine = control.StorageBegin
    engines = SEQUENCERS
    public = False
    dst = Write(ANY_MEMORY)


class DevicePrint(Operation):
    """Print a message and a tensor when the kernel runs; `nl.device_print` in kernels.

    `prefix` is the message, as the code points of its characters.
    """

    name = "device_print"
    machine = control.PrintTensor
    document = "nki/api/nki/language/__init__.py device_print"
    engines = (Engine.sync,)
    public = False
