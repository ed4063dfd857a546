"""Masks that are known when a graph is compiled: how many columns each row sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graph_compiler import parse_text
from graph_compiler.lower.rewrites.masks import added_masks, masks_as_constants, visible_columns
from graph_compiler.schedule.nodes import Block, Node
from graph_compiler.schedule.simplify import Simplifier

Array = np.ndarray[Any, Any]

AT, KEY = np.indices((6, 9))


def scheduled(
    condition: str, choice: str = "select(all, x, l)", given: str = ""
) -> tuple[Simplifier, Block]:
    """A choice among nine columns of six rows of two heads. `at`, `key`, `two`: the number of a
    row, of a column, and 2."""
    text = f"""HloModule masks
larger {{ a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT m = f32[] maximum(a, b) }}
ENTRY e {{
 x = f32[2,6,9] parameter(0)
 {given}
 at = s32[6,9] iota(), iota_dimension=0
 key = s32[6,9] iota(), iota_dimension=1
 number = s32[] constant(2)
 two = s32[6,9] broadcast(number), dimensions={{}}
 {condition}
 all = pred[2,6,9] broadcast(seen), dimensions={{1,2}}
 least = f32[] constant(-1e9)
 lowest = f32[] constant(-inf)
 l = f32[2,6,9] broadcast(least), dimensions={{}}
 s = f32[2,6,9] {choice}
 ROOT m = f32[2,6] reduce(s, lowest), dimensions={{2}}, to_apply=larger
}}"""
    simplifier = Simplifier(parse_text(text))
    return simplifier, simplifier.block(simplifier.evaluator.module.entry)


def visible(condition: str, choice: str = "select(all, x, l)", given: str = "") -> Array | None:
    """How many columns each row sees."""
    simplifier, block = scheduled(condition, choice, given)
    found = [*visible_columns(block, simplifier.evaluator).values()]
    return found[0] if found else None


def last(seen: Array) -> Array:
    """How many columns there are up to the last one that each row sees, for two heads."""
    columns = np.where(seen, KEY + 1, 0).max(-1)
    return np.broadcast_to(columns, (2, 6))


@pytest.mark.parametrize(
    ("condition", "seen"),
    [
        ("seen = pred[6,9] compare(key, at), direction=LE", KEY <= AT),
        ("seen = pred[6,9] compare(at, key), direction=GT", KEY < AT),
        (
            "sum = s32[6,9] add(at, two)\n seen = pred[6,9] compare(key, sum), direction=EQ",
            KEY == AT + 2,
        ),
        (
            "a = pred[6,9] compare(key, at), direction=LE\n"
            " b = pred[6,9] compare(key, two), direction=NE\n seen = pred[6,9] and(a, b)",
            (KEY <= AT) & (KEY != 2),
        ),
    ],
)
def test_conditions(condition: str, seen: Array) -> None:
    np.testing.assert_array_equal(visible(condition), last(seen))
    other = condition.replace("seen =", "hidden =") + "\n seen = pred[6,9] not(hidden)"
    np.testing.assert_array_equal(visible(other, "select(all, l, x)"), last(seen))


def test_masks_that_data_decide_are_not_known() -> None:
    given = "limit = s32[6,9] parameter(1)"
    assert visible("seen = pred[6,9] compare(key, limit), direction=LE", given=given) is None


def test_masks_that_hide_no_last_column_are_none() -> None:
    assert visible("seen = pred[6,9] compare(key, two), direction=GE") is None


def test_known_conditions_are_constants() -> None:
    """What the choice takes its condition from has what the comparison says."""
    simplifier, block = scheduled("seen = pred[6,9] compare(key, at), direction=LE")
    masks_as_constants(block, simplifier.evaluator)
    (choice,) = [node for node in block.nodes if node.op == "select"]
    condition = choice.operands[0]
    assert (condition.op, condition.type, condition.dims) == ("constant", "pred", (2, 6, 9))
    np.testing.assert_array_equal(condition.value, np.broadcast_to(KEY <= AT, (2, 6, 9)))


def test_conditions_of_data_stay() -> None:
    given = "limit = s32[6,9] parameter(1)"
    condition = "seen = pred[6,9] compare(key, limit), direction=LE"
    simplifier, block = scheduled(condition, given=given)
    masks_as_constants(block, simplifier.evaluator)
    assert all(node.operands[0].op != "constant" for node in block.nodes if node.op == "select")


ADDED = """HloModule added
larger { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT m = f32[] maximum(a, b) }
ENTRY e {
 x = TYPE[2,6,9] parameter(0)
 at = s32[6,9] iota(), iota_dimension=0
 key = s32[6,9] iota(), iota_dimension=1
 seen = pred[6,9] compare(key, at), direction=RELATION
 zero = TYPE[] constant(0)
 low = TYPE[] constant(LEAST)
 zeros = TYPE[6,9] broadcast(zero), dimensions={}
 lows = TYPE[6,9] broadcast(low), dimensions={}
 mask = TYPE[6,9] select(seen, zeros, lows)
 shaped = TYPE[1,6,9] reshape(mask)
 flat = TYPE[6,9] reshape(shaped)
 all = TYPE[2,6,9] broadcast(flat), dimensions={1,2}
 sum = TYPE[2,6,9] add(all, x)
 s = f32[2,6,9] convert(sum)
 lowest = f32[] constant(-inf)
 ROOT m = f32[2,6] reduce(s, lowest), dimensions={2}, to_apply=larger
}"""


def chosen(
    type: str = "f32", relation: str = "LE", least: str = "-inf", halves: bool = True
) -> Node | None:
    """The choice that a sum with a mask becomes, if it does."""
    text = ADDED.replace("TYPE", type).replace("RELATION", relation).replace("LEAST", least)
    simplifier = Simplifier(parse_text(text))
    block = simplifier.block(simplifier.evaluator.module.entry)
    added_masks(block, simplifier.evaluator, halves)
    found = [n for n in block.nodes if n.op == "select" and n.dims == (2, 6, 9)]
    return found[0] if found else None


@pytest.mark.parametrize(("type", "least"), [("f32", "-inf"), ("f32", "-1e9"), ("bf16", "-1e30")])
def test_masks_that_are_added_become_choices(type: str, least: str) -> None:
    choice = chosen(type, least=least)
    assert choice is not None
    assert choice.type == "f32"
    seen, scores, hidden = choice.operands
    np.testing.assert_array_equal(seen.value, np.broadcast_to(KEY <= AT, (2, 6, 9)))
    assert scores.type == "f32"
    np.testing.assert_allclose(hidden.value, float(least), rtol=1e-2)


def test_masks_that_scores_may_outweigh_stay_sums() -> None:
    assert chosen(least="-10000") is None


def test_rows_that_see_nothing_stay_sums_unless_all_are_infinite() -> None:
    """Of the first row every key is hidden: what is left are the differences of its scores."""
    assert chosen(relation="LT", least="-1e9") is None
    assert chosen(relation="LT", least="-inf") is not None


def test_sums_in_half_precision_stay_where_that_is_wanted() -> None:
    assert chosen("bf16", halves=False) is None
    assert chosen("f32", halves=False) is not None
