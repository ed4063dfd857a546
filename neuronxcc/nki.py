"""What importing the first-generation API says: the name of its replacement.

The folder has no `__init__.py`, so that a `neuronxcc` that is installed comes before it; and this
is no folder, so that its `nki` does too, and neither distribution holds a file of the other.
"""

# `from neuronxcc import nki` passes over an error with the name of what it imports itself.
raise ModuleNotFoundError(
    "No module named 'neuronxcc.nki': it is the first generation of NKI, which opennki does not "
    "run. Write `import nki` (nki.language, nki.isa) instead; `nki migrate FILE` lists what to "
    "change (SDK nki/migration/index.rst)",
    name="neuronxcc",
)
