"""Running a kernel function to record tile IR.

`call` sorts the arguments (`in_fp32`: kept as float32). `tracer` records each operation that the
author's code calls as a node; rolled loops are traced twice and the traces compared (`comparison`).
With `nki.eager` it has in common what contexts ask of an author's code (`authored`), `exchanges`
between cores, and what cores share (`shared`).
"""
