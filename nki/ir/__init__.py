"""The tile IR: nodes, text, structural comparison, verifier, views of tensors, builders."""

from nki.ir.nodes import Access, Kernel, Loop, Node, Op, Register, Tensor, While, walk

__all__ = ["Access", "Kernel", "Loop", "Node", "Op", "Register", "Tensor", "While", "walk"]
