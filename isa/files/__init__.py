"""Programs as bytes and as text: encoded streams, containers, assembler.

From instructions to a file: `stream` puts an instruction stream into columns, and `reroll` folds
its repeats. `codecs` and `operand_table` write fields and operands, and `encoding` joins these to
the bytes of a stream. `archive` makes named files of a program, and `container` one file with a
header, written as `complete` writes files. Reading goes the other way. `text` is the assembler,
both ways, with the operands of `value_text`.
"""
