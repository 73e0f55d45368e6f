"""The commands, one module each, of its name. Each has an object `command`.

`show --calls`, `show --source` and `show` of several ranks are in the folder above.
"""
