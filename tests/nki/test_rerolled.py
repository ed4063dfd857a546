"""Repetitions of random orders of random steps: as they are defined, and semaphores as without."""

import random
from collections import defaultdict
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest
from combinations import seeded

from isa.columns import Lists
from nki.passes.analysis import rerolled
from nki.passes.analysis.body import Layer
from nki.passes.analysis.channels import Channels
from nki.passes.analysis.rerolled import repeated
from nki.passes.analysis.steps import ENGINES, Level
from nki.passes.synchronise.synchronise import synchronise

QUEUES = {ENGINES: 1, ENGINES + 1: 2}
"""Streams of transfers, and the engines that issue them."""


@dataclass(frozen=True)
class RandomStep:
    """A step that follows those a `distance` before and the steps `once`, with numbers for its
    operands and for the (kinds, operands) of its markers. The scheduler puts it `ahead`."""

    kind: int
    stream: int
    distances: tuple[int, ...]
    once: tuple[int, ...]
    operands: tuple[int, ...]
    markers: tuple[tuple[int, int], ...]
    ahead: float
    follows: list[int] = field(default_factory=list)


def some(rng, most, value):
    return tuple(value() for _ in range(rng.randint(0, most)))


def random_step(rng, kind, before):
    return RandomStep(
        kind,
        rng.choice([0, 1, 2, *QUEUES]),
        some(rng, 3, lambda: rng.choice([1, rng.randint(1, 6), rng.randint(1, 15)])),
        some(rng, 1, lambda: rng.randrange(before + 1)),
        some(rng, 2, lambda: rng.randrange(2)),
        some(rng, 1, lambda: (0, rng.randrange(2))),
        rng.choice([0, 0, 0, rng.uniform(-20, 20), 90]),
    )


def unlike(rng, step, number):
    """The step with one thing that those a period before do not have."""
    return rng.choice(
        [
            replace(step, kind=step.kind + 1),
            replace(step, distances=step.distances[1:]),
            replace(step, distances=tuple(one + 1 for one in step.distances)),
            replace(step, once=(*step.once, rng.randrange(number + 1))),
            replace(step, operands=(*step.operands, 0)),
            replace(step, operands=tuple(1 - one for one in step.operands)),
            replace(step, markers=(*step.markers, (0, 0))),
            replace(step, markers=tuple((1 - kind, one) for kind, one in step.markers)),
            replace(step, markers=tuple((kind, 1 - one) for kind, one in step.markers)),
        ]
    )


def random_stretch(rng):
    """Loops one behind the other, in the order of a scheduler: (order, steps)."""
    steps, times = [], []
    for _ in range(rng.randint(1, 3)):
        body = [
            random_step(rng, 100 * len(steps) + 2 * at, len(steps))
            for at in range(rng.randint(1, 5))
        ]
        for number in range(len(body) * rng.choice([3, 12, 30])):
            step = body[number % len(body)]
            times.append(len(steps) + step.ahead)
            if rng.random() < (0.1 if number < 2 * len(body) else 0.005):
                step = unlike(rng, step, len(steps))
            before = [len(steps) - one for one in step.distances]
            steps.append(replace(step, follows=[at for at in (*before, *step.once) if at >= 0]))
    order = np.argsort(np.array(times), kind="stable")
    place = np.argsort(order).tolist()
    for number, step in enumerate(steps):
        earlier = [at for at in step.follows if place[at] < place[number]]
        issue = [rng.random() < 0.2 and steps[at].stream in QUEUES for at in earlier]
        step.follows[:] = [~at if flag else at for at, flag in zip(earlier, issue)]
    return order, steps


def starts_of(lists):
    return np.append(0, np.cumsum([len(one) for one in lists]))


def as_columns(steps):
    """(body, dependences) of steps, as the passes see them."""
    markers = [one for step in steps for one in step.markers]
    operands = [one for step in steps for one in step.operands]
    streams = [step.stream for step in steps]
    kinds = [2 + 10 * step.kind + step.stream for step in steps]
    count = len(steps)
    level = Level([])
    body = SimpleNamespace(
        steps=steps,
        engine=np.array([QUEUES.get(stream, stream) for stream in streams]),
        queue=np.array([stream if stream in QUEUES else -1 for stream in streams]),
        kind=np.array([*kinds, *[kind for kind, _ in markers]]),
        begins=np.array([len(step.markers) for step in steps]),
        starts=starts_of([step.operands for step in steps]),
        layer=np.zeros(count, np.int64),
        layers=[Layer(0, level, 0, 0, 0, count, [])],
        fixed=np.zeros(count, np.bool_),
        accesses=SimpleNamespace(
            which=np.array([*operands, *[operand for _, operand in markers]], np.int64)
        ),
    )
    none = np.zeros(0, np.int64)
    touched = SimpleNamespace(
        loops=SimpleNamespace(item=none, stream=none),
        inside=np.zeros((2, 0), np.int64),
        runs=np.ones(1, np.bool_),
        iterates=np.zeros(1, np.bool_),
    )
    events = [one if one >= 0 else count + ~one for step in steps for one in step.follows]
    dependences = SimpleNamespace(
        steps=Lists(starts_of([step.follows for step in steps]), np.array(events, np.int64)),
        touched=touched,
        loops={},
        ready=2 * count,
        space=2 * count,
        reach=1,
    )
    return body, dependences


def semaphores(order, body, dependences, repetitions):
    """By place what it waits for and what it tells, and the repetitions that are left of it."""
    context = SimpleNamespace(streams=ENGINES + len(QUEUES), channels=Channels(1000))
    found = synchronise(body, order, dependences, context, repetitions)
    waits, updates = defaultdict(list), defaultdict(list)
    for waiting, telling, semaphore in zip(*[column.tolist() for column in found[:3]]):
        waits[waiting].append(semaphore)
        updates[telling].append(semaphore)
    for start, period, times in found.repetitions:
        for place in range(start + period, start + period * times):
            for names in (waits, updates):
                names[place] = names[place - period]
    by_place = [(sorted(waits[place]), sorted(updates[place])) for place in range(order.size)]
    return by_place, found.repetitions


@seeded("seed", range(40), 20)
def test_semaphores_are_those_of_a_walk_through_all(seed, monkeypatch):
    rng = random.Random(seed)
    for _ in range(24):
        order, steps = random_stretch(rng)
        monkeypatch.setattr(rerolled, "REPEATING", rng.choice([4, 10, 25]))
        assert_walked(order, steps)


@pytest.mark.parametrize("seed", [1259, 1467, 4163, 4313, 6107, 7261])
def test_what_engines_know_comes_again_late(seed, monkeypatch):
    """Found by leaving out comparisons of the walk's state."""
    monkeypatch.setattr(rerolled, "REPEATING", 4)
    assert_walked(*random_stretch(random.Random(seed)))


def assert_walked(order, steps):
    body, dependences = as_columns(steps)
    found = repeated(order, body, dependences, np.arange(2), body.fixed)
    assert_repeated(order.tolist(), steps, found)
    walked, _ = semaphores(order, body, dependences, ())
    left_out, kept = semaphores(order, body, dependences, found)
    assert walked == left_out
    assert_repeated(order.tolist(), steps, kept)


def assert_repeated(order, steps, repetitions):
    place = {number: at for at, number in enumerate(order)}
    for start, period, times in repetitions:
        distances, moved = set(), defaultdict(set)
        for at in range(start + period, start + period * times):
            step, before = steps[order[at]], steps[order[at - period]]
            distances.add(order[at] - order[at - period])
            for name in ("kind", "stream", "operands", "markers"):
                assert getattr(step, name) == getattr(before, name)
            for number, pair in enumerate(zip(step.follows, before.follows, strict=True)):
                one, other = pair
                assert (one < 0) == (other < 0)
                ways = {place[max(one, ~one)] - place[max(other, ~other)]}
                assert ways <= {0, period}
                moved[(at - start) % period, number] |= ways
        assert len(distances) <= 1
        assert all(len(ways) == 1 for ways in moved.values())


def test_random_stretches_have_what_is_to_be_left_out():
    rng = random.Random(0)
    left_out = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rerolled, "REPEATING", 10)
        for _ in range(30):
            order, steps = random_stretch(rng)
            columns = as_columns(steps)
            found = repeated(order, *columns, np.arange(2), columns[0].fixed)
            left_out += len(semaphores(order, *columns, found)[1])
    assert left_out > 5
