"""LLVM text written from Python: functions, structures, number formats, expressions; compiled, kept
on disk, and called."""
