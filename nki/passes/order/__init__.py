"""The order of operations: loops unrolled over sets of buffers, iterations pipelined, lists."""
