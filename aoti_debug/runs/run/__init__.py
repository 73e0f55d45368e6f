"""Runs a package in a child process, with a watchdog, and keeps its run directory.

`runner` does it; `supervise` is the side of this process, `worker` that of the other one.
"""
