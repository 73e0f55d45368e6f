"""Reads a run directory: `run_directory` opens it, `timeline` holds its launches, `launch` is one of them.

Further modules read one file each.
"""
