"""A graph as plans begin with it: simplified, rewritten for a target, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.lower.aliases import donated
from graph_compiler.lower.casts import demote, downcast, round_early, round_in_products
from graph_compiler.lower.control.layers import roll
from graph_compiler.lower.groups.moments import Squares, squares_of_variances
from graph_compiler.lower.movement.narrow_sorts import Span, spans_of_sorts
from graph_compiler.lower.participants import ranks_of
from graph_compiler.lower.rewrites.affine_operands import into_following_weights
from graph_compiler.lower.rewrites.comparisons import in_fp32
from graph_compiler.lower.rewrites.composites import recognise
from graph_compiler.lower.rewrites.factors import behind_products, into_weights
from graph_compiler.lower.rewrites.float8 import emulate
from graph_compiler.lower.rewrites.hoisted_products import hoist_products
from graph_compiler.lower.rewrites.layouts import orders_of_products, row_major_for_products
from graph_compiler.lower.rewrites.masked_rows import zeros_of_masked_rows
from graph_compiler.lower.rewrites.masks import added_masks, masks_as_constants, visible_columns
from graph_compiler.lower.rewrites.norm_factors import columns_first
from graph_compiler.lower.rewrites.pairs import as_pairs, has_random_bits, is_wide
from graph_compiler.lower.rewrites.ranges import narrow
from graph_compiler.lower.rewrites.softmax import compared_choices, factors_behind_maxima
from graph_compiler.lower.rewrites.sums_of_steps import sum_behind_loops
from graph_compiler.lower.rewrites.unrolled import unroll
from graph_compiler.lower.sizes import BIT_FOR_BIT
from graph_compiler.options import GraphOptions, has_e4m3fn
from graph_compiler.partitions import refuse_undivided
from graph_compiler.schedule.simplify import Simplifier

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Module
    from graph_compiler.schedule.nodes import Block, Node
    from isa.target import Target


@dataclass(frozen=True, slots=True)
class RewrittenGraph:
    """A graph whose block no plan changes, so that all plans share it.

    `donated`: by number of a result the parameter whose memory it takes. Of nodes of the block:
    `squares` are read by variances, `sorts` have spans, `visible` masks leave columns; `row_major`
    are those that products want so, and `orders` their dimensions' orders.
    """

    module: Module
    simplifier: Simplifier
    block: Block
    donated: dict[int, int]
    squares: dict[Node, Squares]
    sorts: dict[Node, Span]
    visible: dict[Node, np.ndarray[Any, Any]]
    row_major: set[Node]
    orders: dict[Node, tuple[int, ...]]


def rewritten_graph(module: Module, target: Target, options: GraphOptions) -> RewrittenGraph:
    """A graph simplified and rewritten, as a target and options ask for. Raises hlo-not-compiled
    and documented-refusal for what has no form on the device."""
    if ranks_of(module) > 1:
        refuse_undivided(module)
    simplifier = Simplifier(module)
    block = simplifier.block(module.entry)
    unroll(block, simplifier)
    narrow(block)
    if is_wide(block):
        native = options.native_int64 == "enabled" or has_random_bits(block)
        as_pairs(block, simplifier, computed=native)
    recognise(module, block)
    sum_behind_loops(block)
    hoist_products(block, target)
    if options.emulate_fp8_e4m3fn and not has_e4m3fn(target):
        emulate(block)
    downcast(block, options)
    into_weights(block)
    into_following_weights(block)
    behind_products(block)
    columns_first(block)
    zeros_of_masked_rows(block)
    # Columns that such a mask hides are left out on these targets.
    added_masks(block, simplifier.evaluator, halves=target.generation >= BIT_FOR_BIT)
    factors_behind_maxima(block)
    demote(block, options)
    round_early(block)
    round_in_products(block)
    taken = donated(module)
    roll(block, [block.parameters[number] for number in taken.values()])
    squares, sorts = squares_of_variances(block), spans_of_sorts(block)
    masks_as_constants(block, simplifier.evaluator)
    visible = visible_columns(block, simplifier.evaluator)
    row_major = row_major_for_products(block) | compared_choices(block)
    orders = orders_of_products(block)
    in_fp32(block)
    return RewrittenGraph(
        *(module, simplifier, block, taken, squares, sorts, visible, row_major, orders)
    )
