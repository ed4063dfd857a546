"""Ranks of a distributed kernel: their groups, and how they run together in one process."""
