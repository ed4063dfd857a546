"""Reference mode: tile IR in the author's order, as a program without passes (`in_order`)."""
