"""Checks of tile IR that warn authors or stop them: `hazards` and `own_source` (inside one
instruction), `unset_registers`, `addresses_in_use`."""
