"""A whole program in native code: records, the loop that walks them, and queues of jobs.

A record is 64-bit words: waits, updates, operands, checks, and jobs, which are compiled kernels
with their argument words. Every row has native code but the one that prints, so as a rule no
Python runs between instructions. In three cases an instruction is executed by its Python action,
with the same meaning and the same control trace:

- what a record does not cover: an operand outside, uninitialised memory, operands that overlap or
  whose dimensions do not divide each other, stores that two cores both make;
- a guard ahead of the jobs, where values decide: indices that may be outside, scales that bfloat16
  may not hold, a streamed matrix that may be no identity;
- a read of a register that may hold no value (`simulator.checks.unset`).

`nki diff --modes device,native` stops the loop behind every instruction and compares with NumPy.
Addresses in loops are computed from registers when an instruction issues, which takes a few
nanoseconds. Sentinels are filled when something may see them. Eager mode calls the same jobs one by
one.

Packing: `records` packs the streams of a program, `control_records` what controls them, with what
is `shared` by those of one core. `draft` finds the words and jobs of an instruction, its
`operands`, and whether it is `local` to partitions. Unrolled programs repeat few instructions on
many tiles. So what operands of one `arrangement` need is drafted once, and copied with other
addresses (`template`, `block`). `program` holds all of it. Running: `walk` is the loop; jobs wait
in `partition_queue`, which runs as `partition_blocks`, or in `tensor_queue` (`queues` has what both
share); these note write times (`written`); cores wait at `meetings`.
"""
