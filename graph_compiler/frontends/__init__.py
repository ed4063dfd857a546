"""Front-ends: files and programs of other systems become graphs.

`sniff.load` reads a file of any known format, recognised by its content. `stablehlo.load` reads
StableHLO text and bytecode, `jax.trace` a jax function, `torch.trace` a PyTorch module. Each of
these three needs an optional library and says which when it is missing; nothing of them loads
before the first call.

jaxlib's conversions run in a process of their own (`converter`); `held` recognises graphs in
objects of jax and torch, `handover` gives graphs to XLA, and `xla` runs them there for comparison.
`extras` says which library is missing.
"""
