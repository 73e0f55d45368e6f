"""Tensors that are not what the graph promised: layouts, aliases, bounds, specialisation.

Begin with `contracts`.
"""
