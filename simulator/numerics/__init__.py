"""Numbers as the engines compute them, in NumPy and as fixed sequences of operations.

`conversion` converts memory dtypes to fp32 and back, `packed` those of MX tensors, by the rule of
`special_values` for NaN and zeros. `expressions` prints scalar expressions as NumPy; functions that
are not exact are in `transcendental`, made of the sequences in `polynomial` and `double`. `matmul`
is the product of the PE array, `random` the generators.
"""
