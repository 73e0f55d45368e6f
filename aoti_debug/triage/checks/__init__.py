"""The checks of a triage: each looks for a kind of finding, and confirms it. `session` above them has the list."""
