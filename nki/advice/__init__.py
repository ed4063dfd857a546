"""What an author could change in a kernel, and what it would give: every change is made to the tile
IR, compiled, and timed.

`what_ifs` is the way in. A kind of change is a function from a kernel and a line of its source to
changed kernels, in the module of what it changes: `engines`, `operands`, `buffers`, `loads`,
`transfers`. `advise.CHANGES` lists them. They are found for lines of the critical path only.
"""

from nki.advice.advise import what_ifs

__all__ = ["what_ifs"]
