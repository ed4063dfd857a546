"""A whole program in native code: records of its instructions, the loop that walks them, and the
queues of jobs that run together."""
