"""Copies of blocks at places that are computed while the program runs: slices, updates, gathers."""

from __future__ import annotations

from dataclasses import dataclass

from graph_compiler.host_kernels.registers import kind, storage
from simulator.native.codegen.text import FunctionText, Value


@dataclass(frozen=True, slots=True)
class DynamicCopy:
    """Blocks to or from places inside an array, at start indices clamped so that they fit.

    `counts`: the block's dimensions. `whole`, `outside`: sizes and strides (in elements) of the
    array; `inside`: strides of the block. `starts`: dimension and type of each start index.
    `writes`: into the array, else out of it. One block for every index of `batch`, with the strides
    of arrays in `batch_outside`, of blocks in `batch_inside` and of start indices in
    `batch_starts`. Words: pointers to the
    array, the blocks, and each start index.
    """

    size: int
    counts: tuple[int, ...]
    whole: tuple[int, ...]
    outside: tuple[int, ...]
    inside: tuple[int, ...]
    starts: tuple[tuple[int, str], ...]
    writes: bool
    batch: tuple[int, ...] = ()
    batch_outside: tuple[int, ...] = ()
    batch_inside: tuple[int, ...] = ()
    batch_starts: tuple[int, ...] = ()

    def emit(self, f: FunctionText) -> None:
        pointers = [f.word(number, "ptr") for number in range(2 + len(self.starts))]
        self._each(f, 0, pointers)

    def _each(self, f: FunctionText, axis: int, pointers: list[Value]) -> None:
        if axis == len(self.batch):
            self._block(f, *pointers)
            return

        def one(i: Value) -> None:
            moved = [
                pointer + f.scaled(i, strides[axis] * self.size)
                for pointer, strides in zip(pointers, (self.batch_outside, self.batch_inside))
            ]
            for pointer, (_, type) in zip(pointers[2:], self.starts):
                step = self.batch_starts[axis] * storage(type)[1]
                moved.append(pointer + f.scaled(i, step))
            self._each(f, axis + 1, moved)

        f.loop(f.integer(0), f.integer(self.batch[axis]), 1, one)

    def _block(self, f: FunctionText, array: Value, block: Value, *starts: Value) -> None:
        for place, (axis, type) in zip(starts, self.starts):
            start = f.load(place, storage(type)[0])
            signed = kind(type) == "signed"
            wide = f.convert("sext" if signed else "zext", start, "i64")
            room = f.integer(self.whole[axis] - self.counts[axis])
            if signed:
                wide = f.intrinsic("smax", wide, f.integer(0))
            wide = f.intrinsic("smin" if signed else "umin", wide, room)
            array = array + f.scaled(wide, self.outside[axis] * self.size)
        self._copy(f, 0, array, block)

    def _copy(self, f: FunctionText, axis: int, array: Value, block: Value) -> None:
        bytes_ = self._run(axis)
        if bytes_ is not None:
            source, target = (block, array) if self.writes else (array, block)
            if bytes_ in (1, 2, 4, 8):
                f.store(f.load(source, f"i{8 * bytes_}"), target)
            else:
                f.copy_bytes(target, source, f.integer(bytes_))
            return

        def each(i: Value) -> None:
            outer = array + f.scaled(i, self.outside[axis] * self.size)
            inner = block + f.scaled(i, self.inside[axis] * self.size)
            self._copy(f, axis + 1, outer, inner)

        f.loop(f.integer(0), f.integer(self.counts[axis]), 1, each)

    def _run(self, axis: int) -> int | None:
        """Bytes of the dimensions from `axis` on where they are one run on both sides."""
        step = 1
        for place in range(len(self.counts) - 1, axis - 1, -1):
            if self.counts[place] == 1:
                continue
            if self.outside[place] != step or self.inside[place] != step:
                return None
            step *= self.counts[place]
        return step * self.size
