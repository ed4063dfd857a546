"""What an author could change in a kernel, and what it would give: every change is made to the tile
IR, compiled, and timed.

`what_ifs` is the way in. A kind of change is a function from a kernel and a line of its source to
changed kernels, in the module of what it changes: `engines`, `fusions`, `operands`, `buffers`,
`loads`, `invariant`, `moments`, `neighbours` (on tiles of `row_tiles`), `repeated`, `transfers`.
`advise.CHANGES` lists them. They are found for lines of the critical path only.

Interleaved chains, tables that stay and tiles on more partitions have no rewrite: there the
finished program is timed with other instructions, or under `simulator.timing.assumptions`
(`simulator.profile.what_if`), as is all that a container's profile can say. The order is by what is
saved; where results lose bits, or an engine's rate is assumed, part of the gain counts
(`Changed.weight`). `together` follows the first pieces one after another, which tells what goes
together from what are alternatives. A profile times changes when its text, its data or its advice
is asked for.

What they share: `changed` says what a change is, `nki.transformations.rewrites` makes changes,
`timed` compiles and times them, `reads` says what operations read and write.
"""

from nki.advice.advise import what_ifs

__all__ = ["what_ifs"]
