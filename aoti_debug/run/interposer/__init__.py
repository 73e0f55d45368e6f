"""Packages without the source of their wrapper: launches seen from outside, by standing in front of the functions that
the package's library calls."""
