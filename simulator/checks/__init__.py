"""Checks of a run that real hardware cannot give: initialised bytes, registers that hold no value,
accesses that no address can make."""
