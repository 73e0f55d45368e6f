"""Triage: runs a model in several ways to find out why it crashes, hangs or computes NaN; ends in one finding.

In: a `.pt2` file and inputs. Out: a finding with its evidence, in a directory of its own. `minify` then makes the
smallest program that still shows it. Read `session.py` first.
"""
