"""Front-ends: programs of other systems become graphs.

`stablehlo.load` reads StableHLO text and bytecode, `jax.trace` a jax function, `torch.trace` a
PyTorch module. Each needs an optional library and says which when it is missing; nothing of them
loads before the first call.
"""
