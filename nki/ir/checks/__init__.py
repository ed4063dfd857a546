"""Checks of tile IR: the verifier of whole kernels, and hazards inside one instruction."""
