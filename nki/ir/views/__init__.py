"""Views of tensors: what kernels and builders index, reshape and hand to operations."""
