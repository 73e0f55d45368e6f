"""The code of a kernel: its source with the model lines beside it, PTX, machine code."""
