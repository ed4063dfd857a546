"""Operations that the engines do not have, as graphs of others, written as HLO text.

`expansions` has most of them. `linear` has products of integers and triangular matrices, `windows`
long windows and the gradient of pooling, `empties` arrays without elements, `custom_calls` calls
with a meaning. `extremes` finds where the largest elements are. `computations` applies a
computation of the graph to elements, windows and slices. `collectives` makes exchanges of blocks
between ranks of what they do together; all ranks run one program. `bits` reads the bits of elements
as other types. `single_blocks` combines one block with what is in its place.
"""
