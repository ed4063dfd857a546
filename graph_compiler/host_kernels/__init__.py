"""Kernels of graphs for this CPU, as LLVM text with explicit vectors.

`registers` takes elements of a type into vectors and back, and `elements` has the operations on
them, with the `functions` that CPUs lack. Of these `loops` makes maps and reductions of strided
operands, `bodies` what calls a computation of scalars (folds, sorts, scatters), `movement` copies
of blocks at computed places, and `gemm` products. `division` says where a large call can be cut.
"""
