"""What a graph's values have in HBM, decided on its finished tile IR.

`unread` leaves out those that nobody reads, `arena` lets the others take turns in the bytes of one,
which `best_fit` gives out.
"""
