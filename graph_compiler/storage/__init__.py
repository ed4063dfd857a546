"""What a graph's values have in HBM, decided on its finished tile IR.

`unread` leaves out those that nobody reads, `kept_loads` the loads of what is on chip. `arena`
lets the others take turns in the bytes of one, which `best_fit` gives out.
"""
