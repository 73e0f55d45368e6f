"""Runs a package again with launches skipped or their results replaced, or up to a launch."""
