"""What other compilers do to a kernel, as options: none of them runs unless it is asked for.

Here the author's order is the meaning, and a kernel is compiled as it is written. The vendor's
compiler also moves work. What published counters show of that is a transformation here, so that a
kernel can be timed, and run, in both forms. Results are the same, bit for bit.

A transformation is named by a text, `NAME`, `NAME:TENSOR` or `NAME:TENSOR=NUMBER`: in
`kernel.with_transformations`, `nki.jit(transformations=)`, and `--transform` of the commands.
`table` has their names. Each is a rewrite of the tile IR in the module of what it rewrites, and
runs before all passes (`nki.pipeline`).

`rewrites` has what all are made of. `hoist` moves invariant work out of loops, and `reuse` does
repeated work once, both as `moved_work` allows. `nki.advice` asks both for single lines. `copies`
balances copies out of PSUM among engines, `in_psum` reads results where they are, `squares`
computes squares as products.
"""

from nki.transformations.table import TRANSFORMATIONS, Transformation, transformations, transformed

__all__ = ["TRANSFORMATIONS", "Transformation", "transformations", "transformed"]
