"""Micro-kernels of the rows that work along the elements of each partition, and their plans.

There are three shapes. `elementwise` maps elements: a `Map` of steps from the tables, with masks
and affine numbers as further inputs. `lockstep` carries something along a row, values or generator
states, through 16 rows at once, since the order within a row is fixed. `lines` looks at a row
several times, as adjacent fp32. All of them stay within partitions, so that they can be queued.
"""
