"""What the machine is: tables of targets, instructions and operators, programs and their forms.

From the words of a row to a stored program:

- `dtypes`, `enums`, `memory`, `target`: data types, memories, the figures of each target;
- `scalar`, `alu`, `meaning`: expressions of one element, operators, what a row computes;
- `spec`, `fields`, `rules`, `cost_formula`: how a row declares fields, checks and cost;
- `operations`, `machine`, `expansions`: the two tables, and how the first becomes the second;
- `access`, `affine`, `columns`: addresses, integers with symbols, many integers at once;
- `program`, `storages`, `sequencer`, `binding`: streams, allocations, what control instructions
  do, sizes put in for launch symbols;
- `files`, `errors`: containers and assembler text; the error catalogue.

`wording` and `sections` have names and tables of pages and reports, `gc_pause` pauses garbage
collection, `packed_types` registers NumPy data types, `object_cache` keeps compiled code on disk.
"""

__all__: list[str] = []
