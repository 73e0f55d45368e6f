"""The process that evaluates regions and whole programs."""
