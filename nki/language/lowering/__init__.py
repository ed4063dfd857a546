"""What the functions of `nki.language` become: sequences of `nki.isa` operations."""
