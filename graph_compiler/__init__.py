"""Whole graphs: XLA HLO modules read, checked, executed on the host and compiled."""
