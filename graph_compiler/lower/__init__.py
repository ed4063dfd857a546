"""Graphs to tile IR.

1. `rewritten`: `rewrites` change the simplified graph, and `casts` gives values the types that
   `GraphOptions` ask for. All plans share what comes of it.
2. The host executor's `schedule` makes a list of steps, with another set of handlers (`assemble`):
   loop nests of fused element-wise work, folds, products, copies at computed places, control flow.
   Operators that the engines lack become graphs of others (`expansions`, `draws`). `aliases` puts
   results in the memory of parameters.
3. For the two cores of a logical core `cores` divides the steps; `participants` has the ranks.
4. `control` emits each step into a kernel's builder (`device`): by `nests`, `products`, `movement`,
   or `groups` of fused steps. `kernels` inserts the tile IR of NKI kernels that the graph calls.
5. `in_turns` mixes the operations of steps that keep different engines busy, `grouped_tables` has
   functions of one activation table come together in loops. Where that is faster,
   `early_tables` loads activation tables, and `busy_tensor` multiplies, while engines would wait;
   `estimated_times` says when they do.

`limits` has settings for which no rule is best, `sizes` those of all targets. `steps` has what
steps of one or two views share, `places` and `notes` what sources and reports are told. Where
several ways of doing a step are right, modelled cost decides. What has no form on the device is the
error `hlo-not-compiled`.
"""
