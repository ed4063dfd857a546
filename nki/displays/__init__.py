"""What notebooks show of tensors, kernels and compiled programs: `_repr_html_` of each."""
