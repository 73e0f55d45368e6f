"""Shared by the checks of a triage: its runs, and the proof that a launch is guilty.

`investigation` describes a check and what it returns.
"""
