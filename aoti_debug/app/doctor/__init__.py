"""Checks of this machine: what it lacks for building, running and debugging, and what to do.

`doctor` runs them all.
"""
