"""Records the launches of packages without wrapper source, by interposing the symbols that their library calls."""
