"""From an instruction's operands to a call of compiled code: iteration spaces, plans, and the table
of the rows that have native code."""
