"""Tiles whose partitions are neighbours in memory, such as the columns of a matrix, turned on chip.

A transfer of such a tile would move one element at a time. So rows are loaded as memory has them,
and the tensor engine turns them; what is stored is turned before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from graph_compiler.lower.sizes import BANK, BIT_FOR_BIT, FLOATS, PARTITIONS, WORDS
from graph_compiler.schedule.steps import item_size
from isa.enums import Engine, Memory
from isa.target import Target
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.nests.operands import StoredOperand

_CHUNK = 8 << 10
"""Bytes of a partition that are loaded, or stored, at a time."""

_LATENCY = 1000.0
"""About how many ns pass from a load to when its elements are turned, or from these to a store."""


_ROOM = 16 << 10
"""Bytes of a partition that may be loaded ahead for tiles beside one another."""


class WideColumns(NamedTuple):
    """Where the columns of a tile stand among those of all tiles, which are neighbours in memory:
    the first one, and how many `columns` there are. `loaded`: rows that several tiles share."""

    first: Any
    columns: int
    loaded: dict[Any, NkiTensor]

    def block(self, form: TurnedTile, size: int) -> tuple[int, int]:
        """The first one of the columns that are loaded together, and how many these are."""
        return wide_block(form, self.first, self.columns, size)


def wide_block(form: TurnedTile, first: Any, count: int, size: int) -> tuple[int, int]:
    """Of so many columns the first one of those that are loaded with a tile's, and how many."""
    tile = max(1, form.elements // PARTITIONS) * PARTITIONS * size
    several = even(-(-count // PARTITIONS), max(1, _ROOM // tile)) * PARTITIONS
    if not isinstance(first, int) or form.step == form.columns or form.columns > PARTITIONS:
        return first, form.columns
    start = first // several * several
    return start, min(several, count - start)


class TurnedTile(NamedTuple):
    """A tile [columns, elements]: its columns are neighbours in memory, and `step` elements lie
    from one element of a column to the next. `axis`: the dimension of the tile that has them."""

    columns: int
    elements: int
    step: int
    axis: int

    def parts(self) -> Iterator[tuple[int, int, int]]:
        """The rows in memory, as partitions have them: the first one, how many partitions, and how
        many neighbours each has."""
        each, left = divmod(self.elements, PARTITIONS)
        if each:
            yield 0, PARTITIONS, each
        if left:
            yield self.elements - left, left, 1

    def at_once(self, each: int, size: int, width: int = 0) -> int:
        """How many of a partition's rows are moved at a time, of so many columns."""
        return max(1, min(each, _CHUNK // (max(width, self.columns) * size)))


def turned_tile(target: Target, pattern: Sequence[tuple[Any, int]], size: int) -> TurnedTile | None:
    """The form of a tile (stride and count of each dimension, the partition's first) of elements of
    so many bytes; None of one that is not turned, as transfers as it is are as fast."""
    (one, columns), *inner = pattern
    several = [axis for axis, (_, count) in enumerate(inner, 1) if count > 1]
    if one != 1 or columns < 2 or len(several) != 1 or size not in FLOATS:
        return None
    (axis,) = several
    step, count = pattern[axis]
    if not isinstance(step, int) or step < columns or target.generation < BIT_FOR_BIT:
        return None
    form = TurnedTile(columns, count, step, axis)
    element = target.dma_descriptor_ns.value + size / target.dma_run_bytes_per_ns(size)
    engines = -(-columns * target.dma_engines.value // PARTITIONS)
    direct = columns * count * element / engines
    return form if turned_ns(target, form, size).largest + _LATENCY < direct else None


class TurnedPrice(NamedTuple):
    """About how many ns a tile takes of transfers, the tensor engine, and the engine that copies
    its results, and how many transfers there are."""

    transfers: float
    tensor: float
    copies: float
    number: float

    @property
    def largest(self) -> float:
        """What takes longest."""
        return max(self.transfers, self.tensor, self.copies)


def turned_ns(
    target: Target, form: TurnedTile, size: int, loads: bool = True, count: int = 0
) -> TurnedPrice:
    """What a turned tile takes, which is loaded or stored; one of tiles with so many columns."""
    clock, fast = (target.clock_ghz(engine) for engine in (Engine.vector, Engine.tensor))
    transfers = tensor = copies = 0.0
    number = 0.0
    width = wide_block(form, 0, count, size)[1] if loads and count else form.columns
    share = form.columns / width
    passes = 2 if size == 4 else 1
    for _, rows, each in form.parts():
        several = form.at_once(each, size, width)
        dense = form.step == width
        run = width * (several if dense else 1) * size
        runs = share * rows * (-(-each // several) if dense else each)
        rate = target.dma_run_bytes_per_ns(run, loads)
        engines = -(-rows * target.dma_engines.value // PARTITIONS)
        runs_ns = runs * target.dma_descriptor_ns.value + rows * each * form.columns * size / rate
        transfers += runs_ns / engines
        number += share * -(-each // several)
        tensor += each * passes * max(64, rows, form.columns) / fast
        turned = rows if loads else form.columns
        copies += each * (turned + 70 / max(1, BANK // (turned * size))) / clock
    return TurnedPrice(transfers, tensor, copies, number)


def load_turned(source: StoredOperand, tile: NkiTensor, form: TurnedTile, offset: Any) -> None:
    """Have a tile contain elements of memory, from `offset` elements on."""
    device, size = source.device, item_size(source.type)
    columns, step = form.columns, tile.strides[form.axis]
    for first, rows, each in form.parts():
        for start, loaded in _loaded(source, form, offset, (first, rows, each)):
            for begin, count in _pieces(loaded.shape[1], max(1, BANK // (rows * size))):
                bank = device.tile((columns, count, rows), FLOATS[size], Memory.psum)
                for number in range(count):
                    data = _as(loaded[:, begin + number, :], FLOATS[size])
                    device.transpose(bank[:, number, :], data)
                place = first + start + begin
                dims = [[tile.strides[0], columns], [step, count], [each * step, rows]]
                _copied(device, tile.ap(dims, place * step), bank, size)


def _loaded(
    source: StoredOperand, form: TurnedTile, offset: Any, part: tuple[int, int, int]
) -> Iterator[tuple[int, NkiTensor]]:
    """Tiles [rows, several, columns] of rows as memory has them, and which of a partition's rows
    each begins with."""
    device, size, wide = source.device, item_size(source.type), source.wide
    first, rows, each = part
    begin, width = 0, form.columns
    if wide is not None:
        start, width = wide.block(form, size)
        begin = wide.first - start if width > form.columns else 0
    for start, several in _pieces(each, form.at_once(each, size, width)):
        place = offset - begin + (first + start) * form.step
        key = source.place, source.type, place, width
        loaded = None if wide is None else wide.loaded.get(key)
        if loaded is None:
            loaded = device.tile((rows, several, width), source.dtype)
            pattern = [(each * form.step, rows), (form.step, several), (1, width)]
            device.copy(loaded, source.elements(pattern, place))
            if width > form.columns and wide is not None:
                wide.loaded[key] = loaded
        yield start, loaded[:, :, begin : begin + form.columns]


def store_turned(target: StoredOperand, value: NkiTensor, form: TurnedTile, offset: Any) -> None:
    """Have elements of memory, from `offset` on, be those of a tile."""
    device, size = target.device, item_size(target.type)
    columns, step = form.columns, value.strides[form.axis]
    value = _as(value, FLOATS[size])
    for first, rows, each in form.parts():
        for start, several in _pieces(each, form.at_once(each, size)):
            done = device.tile((rows, several, columns), target.dtype)
            for begin, count in _pieces(several, max(1, BANK // (columns * size))):
                bank = device.tile((rows, count, columns), FLOATS[size], Memory.psum)
                for number in range(count):
                    place = first + start + begin + number
                    dims = [[value.strides[0], columns], [each * step, rows]]
                    device.transpose(bank[:, number, :], value.ap(dims, place * step))
                _copied(device, done[:, begin : begin + count, :], bank, size)
            pattern = [(each * form.step, rows), (form.step, several), (1, columns)]
            device.copy(target.elements(pattern, offset + (first + start) * form.step), done)


def _copied(device: Any, target: NkiTensor, bank: NkiTensor, size: int) -> None:
    """Take a bank out of PSUM; a copy of words leaves all bits as they are."""
    dst, src = _as(target, WORDS[size]), _as(bank, WORDS[size])
    device.builder.emit("tensor_copy", dst=dst, src=src)


def _pieces(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Where pieces of at most so many begin, and how many each has."""
    for start in range(0, count, most):
        yield start, min(most, count - start)


def even(count: int, most: int) -> int:
    """What each of the fewest parts of at most so many has, about alike."""
    return -(-count // -(-count // most))


def _as(tile: NkiTensor, dtype: str) -> NkiTensor:
    return tile if tile.dtype == dtype else tile.view(dtype)
