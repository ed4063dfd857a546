"""Races: whether conflicting accesses are ordered.

The proof of a finished program (`happens_before`):

1. `prepare` puts its streams into columns, `expand` finds the instructions that execute.
2. `clocks` finds in which order: the vector clock of every signal.
3. `regions` and `boxes` find which bytes each access touches; `accesses` finds conflicting ones
   that no clock orders.
4. `findings` says what is wrong, as `race`. Equal writes by two cores are no race (`value_numbers`,
   `same_writes`).

What registers and indices place is looked at in a run (`dynamic_accesses`, `replicated`), and eager
mode looks at shared HBM itself (`unordered`).
"""
