"""Programs as bytes and as text: encoded streams, containers, assembler."""
