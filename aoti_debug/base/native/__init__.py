"""ELF and core files, native call stacks, the text of exceptions."""
