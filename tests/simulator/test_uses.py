"""Streams by template: put together again they are what they were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isa.enums import Engine
from isa.files.text import assemble, print_instruction
from isa.machine.elementwise import Memset
from isa.spec import Instruction
from simulator.uses import chosen, uses_of

HEAD = '.program "p" target=trn2\n.core\n.stream vector\n'
MEMSET = "  Memset dst=float32@sbuf[p0+128]+{offset}[1][4] value={value}{update}\n"
KINDS = st.tuples(st.integers(0, 6), st.sampled_from([1.0, 2.5]), st.sampled_from(["", 0, 1]))


def stream(kinds: list[tuple[int, float, object]]) -> list[Instruction]:
    lines = [
        MEMSET.format(
            offset=hex(16 * place),
            value=value,
            update="" if semaphore == "" else f" $S[{semaphore}]+=1@complete",
        )
        for place, value, semaphore in kinds
    ]
    text = HEAD + "".join(lines) + "  Nop\n  Halt\n"
    return list(assemble(text).cores[0].streams[Engine.vector])


def shown(instruction: Instruction) -> str:
    """Its text without semaphores."""
    row, engine = instruction.row, instruction.engine
    return print_instruction(Instruction(row, engine, instruction.values))


@given(st.lists(KINDS, max_size=12))
def test_every_use_is_an_instruction_of_the_stream(kinds: list) -> None:
    plain = stream(kinds)
    uses = uses_of(plain)
    assert len(uses) == len(plain)
    seen = [""] * len(plain)
    for key, places in enumerate(uses.places):
        for use, place in enumerate(places.tolist()):
            seen[place] = shown(uses.instruction(key, use))
    assert seen == [shown(one) for one in plain]
    pairs = [uses.columns.semaphores[number] for number in uses.semaphores().tolist()]
    assert pairs == [(one.waits, one.updates) for one in plain]


@given(st.lists(KINDS, max_size=12))
def test_chosen_instructions_keep_their_order(kinds: list) -> None:
    plain = stream(kinds)
    found = list(chosen(uses_of(plain), lambda one: one.row is Memset))
    kept = [one for one in plain if one.row is Memset]
    assert [(shown(one), one.updates) for one in found] == [
        (shown(one), one.updates) for one in kept
    ]


def test_what_has_no_encoding_is_grouped_by_its_values() -> None:
    strange = object()
    one, other = (Instruction(Memset, Engine.vector, (strange, value)) for value in (1.0, 2.0))
    uses = uses_of([one, other, one])
    assert len(uses.templates) == 2
    assert [places.tolist() for places in uses.places] == [[0, 2], [1]]
