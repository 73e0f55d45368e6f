"""Requests to the process that evaluates, and its answers, as plain data."""
