"""Prints and inspectors in a model: formats, and the operators that survive export."""
