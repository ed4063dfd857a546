"""Passes over the tile IR, a folder a stage, in the order in which `nki.pipeline` runs them."""
