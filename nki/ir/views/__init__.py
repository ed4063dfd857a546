"""Views of tensors: what kernels and builders index, reshape and hand to operations.

`tensor` is the view, with its `attributes`. `t[key]` goes through `indexing`, or `runtime_index`
where registers index; `shape_views` makes other shapes, `runtime_views` views by run-time indices
and explicit access patterns (`pattern`), with the arithmetic of `layout`; `without_storage` has
out-of-bounds views and descriptions. `refused` and `shown` are what Python may not do with a view,
and shows of one; `objects` are what kernels declare.
"""
