"""Passes over the tile IR, and the stages that make a program of it.

`nki.pipeline` runs `PASSES`, which are in `order` and `place`: roots, peel, rotate, queues,
pipeline, ahead, allocate. Then `lower` runs its stages: expand (`analysis.steps`), schedule
(`order.schedule`), synchronise (`synchronise`), program (`emit`). `analysis` has what several
stages ask of a body. `relocate` compiles equal cores once, `listing` prints instructions.

`nki ir --after STAGE` prints the kernel after any of them; after `synchronise` it shows the
semaphores that each instruction waits for and updates.
"""
