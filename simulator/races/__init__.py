"""Races: whether conflicting accesses are ordered.

A finished program is proven (`happens_before`): what executes (`prepare`, `expand`), in which order
(`clocks`), which bytes (`regions`, `boxes`, `accesses`), and what is reported (`findings`). Writes
that cores make alike are no race (`value_numbers`, `same_writes`). What registers and indices place
is looked at in a run (`dynamic_accesses`, `replicated`, `unordered`).
"""
