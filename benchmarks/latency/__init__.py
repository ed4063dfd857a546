"""Kernels with published latencies, re-written for this API, and the rows that they stand for."""
