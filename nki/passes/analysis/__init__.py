"""The steps of a body in columns: what they touch, and which must come before which.

1. `steps` expands operations to machine instructions; `body` puts them into columns, `content` into
   keys that are equal for equal code.
2. `footprint` gives the box of elements that an access touches; `touches` lists who touches which
   box in each level of loops.
3. `dependences` follows from these: `overlaps` finds boxes of a tensor that overlap, `occupants`
   who had the bytes of another tensor before, `looks` who touched it before.
4. `rerolled` finds the loops that Python unrolled; `channels` gives out semaphores.
"""
