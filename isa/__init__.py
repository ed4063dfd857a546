"""What the machine is: tables of targets, instructions and operators, programs and their forms.

Its modules are what others import: `isa.program`, `isa.target`, `isa.operations`, `isa.errors`.
"""

__all__: list[str] = []
