"""Passes over the tile IR, in the order in which `nki.pipeline` runs them."""
