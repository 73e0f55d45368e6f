"""Requests to the process that runs Inductor, and its answers, as plain data.

`build_failure` says what it was doing when it failed.
"""
