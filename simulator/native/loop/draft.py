"""The draft of a record: words of the instruction's operands and jobs, and the tables that they
name."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.by_identity import ByIdentity
from simulator.device_state import CoreState
from simulator.native.codegen.structure import Structure, WordMemory
from simulator.native.codegen.text import WORD
from simulator.native.loop.local import Local, Reach, local
from simulator.native.loop.operands import OPERAND, PAIR, PATCH, REFERENCE, TERM
from simulator.native.loop.partition_queue import (
    ACCESS,
    ARENAS,
    FARTHEST,
    FETCHED,
    LEAST_COMPUTED,
    LEAST_FETCHED,
    QUEUED,
    STEP,
    TENSOR,
)
from simulator.native.loop.template import Address, Draft, RecordTemplate, Word, WordSpan
from simulator.native.loop.tensor_queue import PRODUCT, PlacedProduct, place_products
from simulator.native.loop.walk import JOB, PART, RECORD
from simulator.native.plans.plan import Bound, Guarded, Job, address_of
from simulator.native.threads.team import parts
from simulator.views import Window

Members = dict[str, Word]

ANYWHERE = 1 << 62

PAST_CACHES = 1 << 22
"""Bytes of a tensor in HBM that is larger than what caches keep for long."""

_ADDRESSES = OPERAND.indices["address"], OPERAND.indices["base"]


class Drafting:
    """The draft for an instruction with operands in these windows, by position (`plan.view_at`).
    `threads` may share jobs; `shares` says whether there are any to share. `tensors` are the
    `TENSOR`s of all streams by their buffer. `unread`: nobody reads the first operand."""

    def __init__(
        self,
        memory: WordMemory,
        state: CoreState,
        threads: int,
        tensors: ByIdentity[int],
        windows: Sequence[tuple[int, Window]],
        unread: bool = False,
    ) -> None:
        self._unread = unread
        self._memory = memory
        self._state = state
        self._threads = threads
        self._tensors = tensors
        self._draft = Draft()
        self._windows = dict(windows)
        self._numbers = {position: number for number, (position, _) in enumerate(windows)}
        self._noted: dict[int, list[int]] = {}
        self._patches: list[Word] = []
        self._work = 0
        self.shares = False
        self.operands = {position: self._operand(position) for position, _ in windows}

    def template(self, members: Members) -> RecordTemplate:
        """The draft, and the members of the record, for operands wherever they lie."""
        record: list[Word] = [0] * len(RECORD.names)
        for name, value in members.items():
            record[RECORD.indices[name]] = value
        positions = [(position, place.base // WORD) for position, place in self.operands.items()]
        noted = [(number, tuple(indices)) for number, indices in self._noted.items()]
        return RecordTemplate(self._draft, record, positions, noted, self._work)

    def table(self, name: str, words: Sequence[Word], structure: Structure) -> Members:
        """The members that name a table: with addresses it is drafted, else others may share it."""
        if not words:
            return {}
        plain = [word for word in words if type(word) is int]
        shared = len(plain) == len(words)
        place: Word = self._memory.table(plain) if shared else self._draft.add(words)
        return {name: place, f"{name}_count": len(words) * WORD // structure.size}

    def references(self, positions: Sequence[int]) -> list[Word]:
        """A `REFERENCE` to each of these operands."""
        return [
            w for position in positions for w in REFERENCE.words(operand=self.operands[position])
        ]

    def _note(self, position: int, place: Address, indices: Sequence[int]) -> None:
        """Addresses in the operand's memory are in words of the table at `place`."""
        if not self._windows[position].on_chip:
            noted = self._noted.setdefault(self._numbers[position], [])
            noted += [place.base // WORD + index for index in indices]

    def _operand(self, position: int) -> Address:
        window, number = self._windows[position], self._numbers[position]
        base = window.buffer.__array_interface__["data"][0] + window.origin
        terms = [word for term in window.registers for word in term]
        place = self._draft.add(
            OPERAND.words(
                address=Address(base, number),
                offset=Address(0, number),
                base=base,
                origin=Address(0, number),
                lowest=window.floor - window.low,
                highest=window.limit - window.high,
                region_lowest=-ANYWHERE,
                region_highest=ANYWHERE,
                low=window.low,
                high=window.high,
                **self.table("terms", terms, TERM),
            )
        )
        self._note(position, place, _ADDRESSES)
        return place

    # Jobs

    def jobs(self, bound: Bound) -> Members:
        """The jobs, and where the addresses of operands go that registers decide."""
        moving = [position for position, window in self._windows.items() if window.dynamic]
        products = place_products(bound, self._windows, self._state.psum.buffer)
        found = None if products else local(bound, self._windows)
        if products:
            members = self._products(products, bool(moving))
        elif found:
            members = self._queued(found, bool(moving))
        else:
            members = self._at_once(bound, bool(moving))
        guards = [bound.guard] if isinstance(bound, Guarded) else []
        for guard in guards:
            members["guard"] = guard.address
            members["guard_words"] = self._arguments(guard, guard.words, bool(moving))
        pairs = [w for job in (*bound.jobs, *guards) for w in self._pairs(job)] if moving else []
        references = self.references(moving)
        return {
            **members,
            **self.table("moving", references, REFERENCE),
            **self.table("patches", self._patches, PATCH),
            **self.table("apart", pairs, PAIR),
        }

    def _at_once(self, bound: Bound, moving: bool) -> Members:
        jobs: list[Word] = []
        for job in bound.jobs:
            divided = parts(job, self._threads)
            self.shares |= len(divided) > 1
            places = [self._arguments(job, part, moving) for part in divided]
            words = [word for place in places for word in PART.words(words=place)]
            jobs += JOB.words(function=job.address, **self.table("parts", words, PART))
        return self.table("jobs", jobs, JOB)

    def _arguments(self, job: Job, part: Sequence[int], moving: bool) -> Address:
        """The argument words of a job, or of a part of it. Where registers move an operand, the
        native loop puts the pointers in."""
        words: list[Word] = list(part)
        for slot, position in () if moving else job.slots:
            base = part[slot] - self._windows[position].offset
            words[slot] = Address(base, self._numbers[position])
        for hint in job.hints if job.slots else ():
            words[hint] = words[job.slots[0][0]]
        place = self._draft.add(words)
        for slot, position in job.slots:
            if moving:
                self._patches += PATCH.words(
                    operand=self.operands[position],
                    word=Address(place.base + WORD * slot),
                    delta=part[slot] - job.words[slot],
                )
            else:
                self._note(position, place, [slot])
        return place

    def _products(self, found: Sequence[PlacedProduct], moving: bool) -> Members:
        """The jobs of an instruction of the tensor engine."""
        words: list[Word] = []
        for (job, image, apart, streams, keep), first, count in found:
            members: Members = {}
            for division in job.divisions:
                steps = [
                    w for slot, step in division.steps for w in STEP.words(word=slot, bytes=step)
                ]
                members |= {"length": division.length, **self.table("steps", steps, STEP)}
            if keep is not None:
                members["keep"] = keep.address
                members["keep_words"] = self._arguments(keep, keep.words, moving)
                members["home"] = job.words[image]
            words += PRODUCT.words(
                function=job.address,
                words=self._arguments(job, job.words, moving),
                words_count=len(job.words),
                image=image,
                apart=apart,
                streams=int(streams),
                first=first,
                count=count,
                work=job.work,
                **members,
            )
            self._work += job.work
        members = self.table("products", words, PRODUCT)
        for number, (product, _, _) in enumerate(found):
            if product.streams:
                moved = self._windows[product.job.slots[-1][1]]
                self._extent(members["products"], PRODUCT, number, "moving", [moved])
        return members

    def _queued(self, found: Local, moving: bool) -> Members:
        """The jobs of a local instruction, and what they do in HBM."""
        jobs: list[Word] = []
        accesses: list[Word] = []
        extents, wrote = [], []
        for job, division, row_bytes, windows, reaches in found.jobs:
            steps = [w for slot, step in division.steps for w in STEP.words(word=slot, bytes=step)]
            extents.append(self._extents(windows))
            written = [self._windows[position] for _, position in job.slots[: job.written]]
            psum = self._state.psum.buffer
            wrote.append([w for w in written if w.on_chip and w.buffer is not psum])
            jobs += QUEUED.words(
                function=self._function(job, reaches),
                words=self._arguments(job, job.words, moving),
                words_count=len(job.words),
                length=division.length,
                first=found.first,
                count=found.rows,
                row_bytes=row_bytes,
                work=job.work,
                lockstep=division.lockstep,
                **_hints(job, found.rows),
                **_fetched(job, reaches),
                **self.table("steps", steps, STEP),
                **dict.fromkeys((*ARENAS, "wrote"), FARTHEST),
            )
            self._work += job.work
            for reach in reaches:
                accesses += ACCESS.words(
                    operand=self.operands[reach.position],
                    tensor=self._tensor(self._windows[reach.position]),
                    writes=int(reach.writes),
                    before=found.first * reach.step,
                    step=reach.step,
                    span=reach.span,
                )
        members = self.table("queued", jobs, QUEUED) | self.table("accesses", accesses, ACCESS)
        place = members["queued"]
        assert isinstance(place, Address)
        for number, spans in enumerate(extents):
            first = place.base // WORD + number * len(QUEUED.names)
            for name in ARENAS:
                ends = QUEUED.indices[name], QUEUED.indices[f"{name}_end"]
                self._draft.extent(first + ends[0], first + ends[1], spans[name])
            self._extent(place, QUEUED, number, "wrote", wrote[number])
        return members

    def _extent(
        self, table: Word, structure: Structure, number: int, name: str, windows: Sequence[Window]
    ) -> None:
        """Member `name` of a structure in a drafted table, and the one for its end, say between
        which bytes of their partitions windows are."""
        assert isinstance(table, Address)
        first = table.base // WORD + number * len(structure.names)
        ends = structure.indices[name], structure.indices[f"{name}_end"]
        self._draft.extent(first + ends[0], first + ends[1], self._spans(windows))

    def _extents(self, windows: Sequence[Window]) -> dict[str, list[WordSpan]]:
        """Which bytes of a partition windows touch, wherever registers move them."""
        return {
            name: self._spans([w for w in windows if w.buffer is arena.buffer])
            for name, arena in zip(ARENAS, (self._state.sbuf, self._state.psum))
        }

    def _spans(self, windows: Sequence[Window]) -> list[WordSpan]:
        """Between which bytes of their partitions windows are."""
        numbers = {id(window): self._numbers[p] for p, window in self._windows.items()}
        return [
            (numbers[id(w)], w.floor - w.offset, w.limit - w.offset)
            if w.dynamic or w.index is not None
            else (numbers[id(w)], w.low, w.high)
            for w in windows
        ]

    def _function(self, job: Job, reaches: Sequence[Reach]) -> int:
        """The address of what a queued job calls. A tensor that is written and fits in no cache
        would only take the room of what is used next."""
        if self._unread and job.unread is not None:
            return address_of(job.unread())
        if job.past_caches is not None:
            for reach in reaches:
                if reach.writes and self._windows[reach.position].buffer.size >= PAST_CACHES:
                    return address_of(job.past_caches())
        return job.address

    def _tensor(self, window: Window) -> int:
        """The `TENSOR` of a window's buffer."""
        if window.buffer not in self._tensors:
            self._tensors[window.buffer] = self._memory.room(len(TENSOR.names))
        return self._tensors[window.buffer]

    def _pairs(self, job: Job) -> list[Word]:
        """Operands that could share bytes with what the job writes."""
        words: list[Word] = []
        positions = [position for _, position in job.slots]
        for number, written in enumerate(positions[: job.written]):
            first = self._windows[written]
            for position, same in zip(positions[number + 1 :], job.same[number:]):
                other = self._windows[position]
                if first.buffer is other.buffer and _meet(first, other):
                    words += PAIR.words(
                        left=self.operands[written], right=self.operands[position], same=int(same)
                    )
        return words


def _hints(job: Job, rows: int) -> dict[str, int]:
    """Where a job takes hints, if it computes for so long that they are worth while."""
    if not job.hints or job.work < LEAST_COMPUTED * rows:
        return {}
    return {"hints": job.hints[0], "hints_count": len(job.hints)}


def _fetched(job: Job, reaches: Sequence[Reach]) -> dict[str, int]:
    """The rows in HBM that a job reads, if they are worth a hint."""
    members: dict[str, int] = {}
    worth = [r for r in reaches if not r.writes and LEAST_FETCHED <= r.span <= r.step]
    for name, reach in zip(FETCHED, worth):
        slot = next(slot for slot, position in job.slots if position == reach.position)
        members |= {name: slot, f"{name}_step": reach.step}
    return members


def _meet(left: Window, right: Window) -> bool:
    """Whether two operands in one memory may share bytes: on chip, whether they share partitions.
    Operands that are always equally far apart are looked at here, if they are rows."""
    if left.on_chip:
        ends = [
            (window.origin, window.origin + window.shape[0] * window.strides[0])
            for window in (left, right)
        ]
        if ends[0][1] <= ends[1][0] or ends[1][1] <= ends[0][0]:
            return False
    if left.registers == right.registers:
        distance = right.offset - left.offset
        if left.high <= distance + right.low or distance + right.high <= left.low:
            return False
    return True
