"""Checks of tile IR: of whole kernels, and of single instructions.

`verify` has the invariants of the IR, which tests check around each pass. Warnings and errors for
authors: `hazards` and `own_source` (inside one instruction), `unset_registers`, `addresses_in_use`.
"""
