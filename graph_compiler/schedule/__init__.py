"""Graphs to lists of steps, which the host executes and which are lowered to the device.

`simplify` makes a block of array `nodes` of a module, and `schedule` makes `steps` of a block:
element-wise work stays an expression over strided `views` until something needs it in memory
(`fusion`). `contractions`, `convolutions`, `reductions`, `ordering` and `placement` are the steps
of their operators. `parts` divides large calls for several threads. `attributes` and `structure`
say what makes two steps, or two modules, the same.
"""
