"""Triage: runs a model in several ways to find out why it crashes, hangs or computes NaN; ends in one finding."""
