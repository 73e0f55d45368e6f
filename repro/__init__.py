"""Repros: a folder or a file that replays one launch alone.

`repro` writes one; `generate_texts` makes its texts with a module for each kind of launch. `templates` travels with it.
"""
