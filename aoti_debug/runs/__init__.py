"""Runs of instrumented packages: makes them, reads them, and names the guilty launch.

In: an instrumented package and inputs. Out: a run directory, its timeline of launches, a verdict. `run` runs a package
in a child process, `rundir` reads what it has written, `diagnosis` decides. Read `rundir/timeline.py` first.
"""
