"""The tile IR: nodes, text form, structural comparison, verifier; views of tensors, and builders."""

from nki.ir.nodes import Access, Kernel, Loop, Node, Op, Register, Tensor, While, walk

__all__ = ["Access", "Kernel", "Loop", "Node", "Op", "Register", "Tensor", "While", "walk"]
