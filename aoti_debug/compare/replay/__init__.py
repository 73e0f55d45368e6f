"""Runs a package again with launches skipped or their results replaced: do the outputs heal, and what is before one."""
