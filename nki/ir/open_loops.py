"""The rolled loops that the kernel's Python code is in, whoever runs its operations."""

from __future__ import annotations

from types import FrameType
from typing import Any

from isa.errors import NeuronError
from nki.ir.accumulate import Accumulation
from nki.ir.locations import resolve, same_statement, while_exit
from nki.ir.nodes import Register


class Iteration:
    """One run of a rolled loop's body, by itself: what is made in it is fresh, and ends with it."""

    __slots__ = ("over",)

    def __init__(self) -> None:
        self.over = False


class OpenLoop:
    """A rolled loop that has begun and not ended.

    `register` is a `while`'s condition and `frame` the Python frame that evaluates it, which tells
    a loop from another one of the same line in a recursive call. Both are None in other loops.
    `renewed`: operations that ran wrote the condition, or a loop began that may, had it iterations.
    `iteration` is the one that runs, where they run one after the other, and `iterations` how many
    came before it.
    """

    __slots__ = ("abandoned", "frame", "iteration", "iterations", "location", "register", "renewed")

    def __init__(
        self, location: Any, register: Register | None = None, frame: FrameType | None = None
    ) -> None:
        self.location = location
        self.register = register
        self.frame = frame
        self.abandoned = False
        self.renewed = False
        self.iteration = Iteration()
        self.iterations = 0

    def __enter__(self) -> None:
        """An iteration of a `for`: Python ends its generator where the loop is left early."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.abandoned = kind is GeneratorExit

    def next_iteration(self) -> None:
        """The iteration that runs is over, and another one begins."""
        self.iteration.over = True
        self.iteration = Iteration()
        self.iterations += 1

    def evaluates(self, location: Any, frame: FrameType) -> bool:
        """Whether the condition of this `while` is what `frame` evaluates at a location."""
        return self.frame is frame and same_statement(self.location, location)

    def left(self) -> NeuronError:
        """The error of a loop that did not run to its end."""
        what = "a `while` on a register" if self.register is not None else "a rolled loop"
        return NeuronError(
            "loop-break",
            what=f"{what} was left by `break`, `return` or an exception",
            location=resolve(self.location),
        )


def never_written(register: Register, location: Any) -> NeuronError:
    """The error of a `while` that never writes its condition."""
    return NeuronError(
        "value-not-allowed",
        what=f"the body of `while {register.name}` never writes {register.name!r}",
        why="A loop whose condition never changes does not end.",
        hint="Update the register in the body with nisa.register_load.",
        location=resolve(location),
    )


class OpenLoops:
    """The open loops of one core, outermost first, and its `no_reorder` blocks."""

    __slots__ = ("_accumulation", "_loops", "ordered")

    def __init__(self, accumulation: Accumulation) -> None:
        self._accumulation = accumulation
        self._loops: list[OpenLoop] = []
        self.ordered = 0

    def __len__(self) -> int:
        """How many loops are open."""
        return len(self._loops)

    @property
    def iteration(self) -> Iteration | None:
        """That of the innermost loop."""
        return self._loops[-1].iteration if self._loops else None

    def enter(self, loop: OpenLoop, trips: Any = None) -> None:
        """A loop begins, of so many iterations; None: only the device knows how many."""
        for outer in self._loops:
            outer.renewed = True
        self._loops.append(loop)
        self._accumulation.enter_loop(trips)

    def leave(self, loop: OpenLoop) -> None:
        """A loop ends. Raises loop-break when one inside of it never did."""
        self.expect(loop)
        self._loops.pop()
        loop.iteration.over = True
        self._accumulation.leave_loop()

    def written(self, register: Register) -> None:
        """An operation wrote a register."""
        for loop in self._loops:
            if loop.register is register:
                loop.renewed = True

    def expect(self, loop: OpenLoop) -> None:
        """The loop whose iteration ends must be the innermost one."""
        if self._loops[-1] is not loop:
            raise self._loops[-1].left()

    def check_left(self) -> None:
        """Raises loop-break where a loop that the kernel's code seems to be in was left early."""
        for loop in self._loops:
            if loop.abandoned:
                raise loop.left()

    def finish(self) -> None:
        """The kernel function returned: no loop may be open."""
        if self._loops:
            raise self._loops[-1].left()

    def repeated(self, register: Register, location: Any, frame: FrameType) -> Any:
        """The innermost loop if it is the `while` whose condition is evaluated again, else None.

        Raises loop-carried-state when its condition is another register now.
        """
        loop = self._loops[-1] if self._loops else None
        if loop is None or not loop.evaluates(location, frame):
            return None
        if loop.register is not register:
            assert loop.register is not None
            raise NeuronError(
                "loop-carried-state",
                what=f"the condition is register {loop.register.name!r} in one iteration and "
                f"{register.name!r} in the next",
                hint="Write the new condition into the same register with nisa.register_load or "
                "nisa.register_move.",
                location=resolve(location),
            )
        return loop

    def check_while(self, register: Register, location: Any, frame: FrameType) -> None:
        """A `while` begins: it must be able to run as a rolled loop."""
        self.refuse_order("a `while` on a register", location)
        if any(loop.evaluates(location, frame) for loop in self._loops):
            raise self._loops[-1].left()
        leaves = while_exit(location)
        if leaves is not None:
            raise NeuronError(
                "loop-break",
                what=f"`{leaves.text.strip()}` leaves `while {register.name}`",
                location=leaves,
            )

    def refuse_shared(self) -> None:
        """A shared HBM tensor is made, which the body of a rolled loop cannot."""
        if not self._loops:
            return
        self.check_left()
        raise NeuronError(
            "not-supported",
            what="a shared HBM tensor is made in the body of a rolled loop",
            why="Cores share one tensor for all iterations.",
            hint="Make it before the loop, or use nl.private_hbm.",
        )

    def refuse_order(self, what: str, location: Any) -> None:
        """A rolled loop begins, which `nl.no_reorder` cannot hold."""
        if self.ordered:
            raise NeuronError(
                "not-supported",
                what=f"{what} inside nl.no_reorder()",
                why="Rolled loops are not supported inside no_reorder (SDK nki-dynamic-loops.rst, "
                '"Interaction with no_reorder").',
                hint="Put the no_reorder block inside the loop body.",
                location=resolve(location),
            )
