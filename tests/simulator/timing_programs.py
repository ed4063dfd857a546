"""Hand-written programs for tests of the timing model and the profile."""

from __future__ import annotations

from isa.access import AccessPattern
from isa.alu import ACTIVATIONS
from isa.array_tiles import WHOLE_ARRAY
from isa.enums import DgeMode, Engine, Memory, OobMode, ReduceCommand
from isa.machine import control, dma, elementwise, scalar, tensor
from isa.program import (
    CoreProgram,
    OnChipAllocation,
    Program,
    Queue,
    RegisterReference,
    SourceLocation,
    TensorDeclaration,
)
from isa.spec import Instruction

PE, DVE, ACT, POOL, SP = (
    Engine.tensor,
    Engine.vector,
    Engine.scalar,
    Engine.gpsimd,
    Engine.sync,
)


def sbuf(free, dtype="float32", partitions=128, offset=0, stride=1, start=0):
    return AccessPattern(Memory.sbuf, dtype, offset, ((stride, free),), start, partitions)


def psum(free, dtype="float32", partitions=128, offset=0):
    return AccessPattern(Memory.psum, dtype, offset, ((1, free),), 0, partitions)


def hbm(rows, columns, pitch, dtype="float32", tensor=0):
    return AccessPattern(Memory.shared_hbm, dtype, 0, ((pitch, rows), (1, columns)), tensor=tensor)


class Builder:
    """Collects the streams of one core."""

    def __init__(self, target="trn2", queues=(("loads", Engine.sync), ("stores", Engine.gpsimd))):
        self.target = target
        self.streams = {}
        self.queues = [Queue(*queue) for queue in queues]
        self.storages = []
        self.open_loops = {}

    def add(self, row, engine, *values, waits=(), updates=(), line=0):
        instruction = Instruction(row, engine, values, tuple(waits), tuple(updates), line)
        self.streams.setdefault(engine, []).append(instruction)
        return instruction

    def loop(self, engine, trips):
        stream = self.streams.setdefault(engine, [])
        register = RegisterReference(len(self.open_loops.setdefault(engine, [])))
        self.open_loops[engine].append(len(stream))
        self.add(control.LoopBegin, engine, register, 0, trips, 1, 0)

    def end(self, engine):
        begin = self.open_loops[engine].pop()
        self.add(control.LoopEnd, engine, begin)
        stream = self.streams[engine]
        stream[begin].values = (*stream[begin].values[:4], len(stream))

    def load(self, dst, src, waits=(), updates=(), mode=DgeMode.hwdge, engine=Engine.sync, line=0):
        queue = next(i for i, q in enumerate(self.queues) if q.engine is engine)
        return self.add(
            dma.DmaCopy, engine, dst, src, queue, mode, OobMode.error,
            waits=waits, updates=updates, line=line,
        )  # fmt: skip

    def program(self):
        return program([self])


def program(builders):
    locations = [
        SourceLocation("kernel.py", n + 1, 0, 4, "kernel", f"line {n + 1}") for n in range(9)
    ]
    cores = [CoreProgram(b.streams, b.queues, b.storages) for b in builders]
    tensors = [TensorDeclaration("a", "float32", (8192, 8192), "input")]
    return Program(
        "kernel", builders[0].target, cores, tensors, [0], ["a"], [], locations=locations
    )


# Semaphores of the matmul programs.
LHS, RHS, FREE_LHS, FREE_RHS, SUM, FREE_SUM, OUT, FREE_OUT = range(8)


def _multiply(b, tiles, depth, rhs_buffers):
    """TensorE, VectorE and stores of the tiled matmul: `tiles` output tiles, K of `depth` tiles."""
    pe, dve, pool = Engine.tensor, Engine.vector, Engine.gpsimd
    b.add(control.Nop, pe, updates=[(FREE_RHS, rhs_buffers)])
    b.loop(pe, tiles)
    b.add(control.Nop, pe, waits=[(FREE_SUM, 1)])
    b.loop(pe, depth)
    return pe, dve, pool


def matmul_loads_inside(tiles, depth, mode=DgeMode.hwdge, buffers=4):
    """The tiled fp32 matmul whose inner loop loads both tiles (tutorial version 2)."""
    b = Builder()
    sync = Engine.sync
    b.loop(sync, tiles)
    b.loop(sync, depth)
    b.load(sbuf(128), hbm(128, 128, 4096), [(FREE_LHS, 1)], [(LHS, 1)], mode, line=1)
    b.load(sbuf(512), hbm(128, 512, 8192), [(FREE_RHS, 1)], [(RHS, 1)], mode, line=2)
    b.end(sync)
    b.end(sync)
    pe = _multiply(b, tiles, depth, buffers)[0]
    b.streams[pe][0].updates = ((FREE_LHS, buffers), (FREE_RHS, buffers))
    b.add(
        tensor.LoadStationary, pe, sbuf(128), WHOLE_ARRAY, waits=[(LHS, 1)], updates=[(FREE_LHS, 1)]
    )
    b.add(
        tensor.MultiplyMoving, pe, psum(512), sbuf(512), True, WHOLE_ARRAY,
        waits=[(RHS, 1)], updates=[(FREE_RHS, 1)], line=3,
    )  # fmt: skip
    _finish_tiles(b, tiles)
    return b.program()


def matmul_hoisted_loads(rows, columns, depth, mode=DgeMode.hwdge):
    """The same with a column of lhs tiles loaded a row of output tiles, and a column of rhs tiles
    an output tile (tutorial version 3)."""
    b = Builder()
    sync, tiles = Engine.sync, rows * columns
    b.loop(sync, rows)
    b.loop(sync, depth)
    b.load(sbuf(128), hbm(128, 128, 4096), [(FREE_LHS, 1)], [(LHS, 1)], mode, line=1)
    b.end(sync)
    b.loop(sync, columns * depth)
    b.load(sbuf(512), hbm(128, 512, 8192), [(FREE_RHS, 1)], [(RHS, 1)], mode, line=2)
    b.end(sync)
    b.end(sync)
    pe = Engine.tensor
    b.add(control.Nop, pe, updates=[(FREE_LHS, 2 * depth), (FREE_RHS, depth + depth // 4)])
    b.loop(pe, rows)
    b.add(control.Nop, pe, waits=[(LHS, depth)])
    b.loop(pe, columns)
    b.add(control.Nop, pe, waits=[(FREE_SUM, 1)])
    b.loop(pe, depth)
    b.add(tensor.LoadStationary, pe, sbuf(128), WHOLE_ARRAY)
    b.add(
        tensor.MultiplyMoving, pe, psum(512), sbuf(512), True, WHOLE_ARRAY,
        waits=[(RHS, 1)], updates=[(FREE_RHS, 1)], line=3,
    )  # fmt: skip
    b.end(pe)
    b.add(control.Nop, pe, updates=[(SUM, 1)])
    b.end(pe)
    b.add(control.Nop, pe, updates=[(FREE_LHS, depth)])
    b.end(pe)
    _evict(b, tiles)
    return b.program()


def _finish_tiles(b, tiles):
    pe = Engine.tensor
    b.end(pe)
    b.add(control.Nop, pe, updates=[(SUM, 1)])
    b.end(pe)
    _evict(b, tiles)


def _evict(b, tiles):
    """PSUM to SBUF on VectorE, SBUF to HBM by a queue of GpSimd."""
    dve, pool = Engine.vector, Engine.gpsimd
    b.add(control.Nop, dve, updates=[(FREE_SUM, 2)])
    b.loop(dve, tiles)
    b.add(
        elementwise.TensorCopy, dve, sbuf(512), psum(512),
        waits=[(SUM, 1), (FREE_OUT, 1)], updates=[(FREE_SUM, 1), (OUT, 1)], line=4,
    )  # fmt: skip
    b.end(dve)
    b.add(control.Nop, pool, updates=[(FREE_OUT, 2)])
    b.loop(pool, tiles)
    b.load(hbm(128, 512, 8192), sbuf(512), [(OUT, 1)], [(FREE_OUT, 1)], DgeMode.none, pool, line=5)
    b.end(pool)


def storage(name, memory, offset, size):
    return OnChipAllocation(name, memory, "float32", (128, size // 4), 0, 128, offset, size, 0)


def spans(timeline, name, core=0):
    """The spans of a track of a core."""
    track = next(track for track in timeline.cores[core].tracks if track.name == name)
    return list(track.spans)


def activate(b, dst, src, function="exp", **options):
    """Add an activation to a stream of the scalar engine."""
    return b.add(
        scalar.Activate, ACT, dst, src, ACTIVATIONS[function], None, 1.0, ReduceCommand.idle,
        **options,
    )  # fmt: skip


def multiply(b, n=512, dtype="bfloat16", load=True):
    """Add a product, and the load of its tile, to a stream of the tensor engine."""
    if load:
        b.add(tensor.LoadStationary, PE, sbuf(128, dtype), WHOLE_ARRAY)
    b.add(tensor.MultiplyMoving, PE, psum(n), sbuf(n, dtype), True, WHOLE_ARRAY)
