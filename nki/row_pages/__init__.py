"""Reference pages of single rows: operations and machine instructions. `nki isa` shows them too."""
