"""Child processes that can be killed, or that end with this one; their messages and errors as data."""
