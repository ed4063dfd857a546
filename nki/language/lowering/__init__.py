"""What the functions of `nki.language` become: sequences of `nki.isa` operations.

`table` has the element-wise functions, with bound and example. A call chooses the dtype of its
result (`promotion`) and emits operations through `emitter`: by `arithmetic`, `division`,
`rounding`, `logarithm`, `trigonometry` (over `angles`) or `reduction`.
"""
