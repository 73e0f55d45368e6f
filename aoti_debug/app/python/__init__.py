"""Functions for Python: `record` for a block of a running process, and `debug` for a model."""
