"""Checks of a run that real hardware cannot give: initialised bytes, registers that hold no value,
accesses that no address can make.

`regions` are allocations and their states, `marks` records for each byte of some whether it was
written and is initialised, `tracked` reads and writes those of operands. `initialised` keeps marks
up to date as instructions run, and reports. How marks pass through an instruction is in
`propagation`, which follows `meaning` where a row states it, and else has the files of families:
`vector_rows`, `gather_rows`, `mx_rows`, `random_rows`; `engine_marks` does so for engine state.
`unset` looks for registers without a value, `impossible` for instructions that no engine runs.
"""
