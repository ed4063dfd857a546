"""What a graph's values have in HBM, decided on its finished tile IR.

`forwarded_stores` uses tiles instead of loading what they were stored to, `carried_tiles` has
loops carry them, `copied_stores` lets iterations go on while they are stored; `plain_transfers` is
what these look at. `unread` leaves out what nobody reads, `kept_loads` the loads of what is on
chip. `arena` lets the others take turns in the bytes of one, which `best_fit` gives out.
"""
