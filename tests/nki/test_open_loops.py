"""Open loops of a core: what is inside of what, and the loops that were left."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa.errors import NeuronError
from nki.ir.accumulate import Accumulation
from nki.ir.nodes import Register
from nki.ir.open_loops import OpenLoop, OpenLoops, never_written


def loops() -> OpenLoops:
    return OpenLoops(Accumulation(3))


@given(st.lists(st.booleans(), max_size=20))
def test_loops_end_in_the_order_in_which_they_began(enters: list[bool]) -> None:
    """True: another one begins; False: the innermost one ends."""
    open_loops, stack = loops(), []
    for enter in enters:
        if enter:
            stack.append(OpenLoop(None))
            open_loops.enter(stack[-1], 2)
        elif stack:
            ended = stack.pop()
            open_loops.leave(ended)
            assert ended.iteration.over
        assert len(open_loops) == len(stack)
        assert open_loops.iteration is (stack[-1].iteration if stack else None)
    if stack:
        with pytest.raises(NeuronError) as caught:
            open_loops.finish()
        assert caught.value.code == "loop-break"
    else:
        open_loops.finish()


def test_an_outer_loop_cannot_end_first() -> None:
    open_loops, outer, inner = loops(), OpenLoop(None), OpenLoop(None)
    open_loops.enter(outer, 2)
    open_loops.enter(inner, 2)
    with pytest.raises(NeuronError) as caught:
        open_loops.leave(outer)
    assert caught.value.code == "loop-break"


def test_a_loop_that_python_leaves_is_known() -> None:
    open_loops, loop = loops(), OpenLoop(None)
    open_loops.enter(loop, 2)

    def iterations():
        for number in range(3):
            with loop:
                yield number

    for number in iterations():
        if number == 1:
            break
    assert loop.abandoned
    with pytest.raises(NeuronError) as caught:
        open_loops.check_left()
    assert caught.value.code == "loop-break"


def test_the_condition_of_a_while_is_renewed_by_a_write_or_by_a_loop_inside() -> None:
    frame, location = sys._getframe(), (test_an_outer_loop_cannot_end_first.__code__, 0)
    condition, other = Register(0, "condition"), Register(1, "other")
    for act in (lambda o: o.written(condition), lambda o: o.enter(OpenLoop(None), 2)):
        open_loops, loop = loops(), OpenLoop(location, condition, frame)
        open_loops.enter(loop)
        open_loops.written(other)
        assert not loop.renewed
        act(open_loops)
        assert loop.renewed
    assert "'condition'" in never_written(condition, None).what


def test_another_register_in_the_next_iteration_is_refused() -> None:
    frame, location = sys._getframe(), (test_an_outer_loop_cannot_end_first.__code__, 0)
    condition, other = Register(0, "condition"), Register(1, "other")
    open_loops, loop = loops(), OpenLoop(location, condition, frame)
    open_loops.enter(loop)
    assert open_loops.repeated(condition, location, frame) is loop
    with pytest.raises(NeuronError) as caught:
        open_loops.repeated(other, location, frame)
    assert caught.value.code == "loop-carried-state"


@pytest.mark.parametrize("nested", [False, True])
def test_what_blocks_that_keep_order_and_loops_cannot_hold(nested: bool) -> None:
    open_loops = loops()
    open_loops.refuse_shared()
    open_loops.refuse_order("a loop", None)
    if nested:
        open_loops.enter(OpenLoop(None), 2)
    open_loops.ordered += 1
    with pytest.raises(NeuronError) as caught:
        open_loops.refuse_order("a loop", None)
    assert caught.value.code == "not-supported"
    if nested:
        with pytest.raises(NeuronError):
            open_loops.refuse_shared()
