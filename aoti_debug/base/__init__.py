"""The foundation of every other part: errors, dtypes, numbers shared with C++, wording, and this machine.

In and out: nothing of a model. `machine` holds files, child processes, caches and the compiler; `native` reads ELF
files and native stacks. Read `errors.py` first.
"""
