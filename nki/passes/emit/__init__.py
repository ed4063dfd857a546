"""Steps become the streams of a program.

`emit` writes the streams, with `addresses` (access patterns of operands), `registers` (their
numbers) and `location_table` (the source map). `declarations` has what the program declares,
`banks` checks where results lie in PSUM.
"""
