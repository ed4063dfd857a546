"""LLVM text written from Python, compiled, kept on disk, and called.

1. `text` writes a function instruction by instruction; `structure` adds structures of words, `nest`
   loop nests, `vectors` operators on vectors.
2. What is computed: `ports` (number formats), `expressions` (scalar expressions), `fused`
   (multiply-adds).
3. What the CPU has and how fast it is: `levels`, `rates`.
4. `library` compiles and calls what a description generates; `isa.object_cache` keeps it on disk.
"""
