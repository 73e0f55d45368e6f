"""Finds which launches, or which settings, make a model wrong."""
