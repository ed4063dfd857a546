"""The tile IR: nodes, text, verifier, views of tensors, builders.

`nodes` has the nodes, and `views` what they operate on. `context` is the interface through which an
author's calls reach a builder or eager mode. `open_loops` has the loops that the code is in,
`locations` its source lines, `no_result` errors of calls. `builder` makes IR, with `accumulate` for
PSUM groups; `text` prints and reads it, `checks` verifies it. Passes use `begins`, `rewrite` and
`replace`.
"""

from nki.ir.nodes import Access, Loop, Node, Op, Register, Tensor, TracedKernel, While, walk

__all__ = ["Access", "TracedKernel", "Loop", "Node", "Op", "Register", "Tensor", "While", "walk"]
