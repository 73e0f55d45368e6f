"""Reads the source of a generated kernel: statements, slices, arithmetic, model lines."""
