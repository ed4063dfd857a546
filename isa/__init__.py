"""What the machine is: tables of targets, instructions and operators, programs and their forms."""
