"""A process that has imported modules once, and forks: its children start with them imported."""
