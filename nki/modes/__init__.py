"""Tile IR as its author wrote it: one operation at a time (eager), or a program (reference)."""
