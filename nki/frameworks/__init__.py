"""What kernels meet of others: arrays of NumPy, torch and jax, callables, compiled functions."""
