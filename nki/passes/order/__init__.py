"""The order of operations, and which engine does what: passes over tile IR, and the list scheduler.

In the order in which they run:

1. `peel`: the first iteration of an accumulation overwrites, the others add.
2. `rotate`: multi-buffering. A trip gets several iterations, each with buffers of its own.
3. `queues`: which engine starts a load, by the walk over lists of nodes in `choices`.
4. `pipeline`: software pipelining, before tensors have addresses, by a list schedule over
   dependences (`precedence`), with engines and free memory as resources. Operations that may
   change places, and their orders, are in `movable`.
5. `schedule`, after allocation: the order of the machine instructions of basic blocks.

`list_schedule` is the list scheduler of both. `schedule` has what operations cost, `trips` has trip
counts. `modelled` times a piece of code by the event model, `iterations` estimates loops.
"""
