"""Steps that hold others: loops and conditions.

`flow` emits steps, those inside of others too, in the order of `step_order`; what a loop carries
stays on chip from trip to trip.
`loops` schedules loops, `counted` has those whose trips are known. `layers` makes one loop of equal
layers. They are found by their operations, checked by their wiring, and cut where the least goes
from one layer to the next; weights lie one behind another in HBM.
"""
