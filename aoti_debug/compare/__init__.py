"""Comparisons of a run: with its program, with another run, with itself where launches are skipped or replaced.

In: a run with saved tensors, and the graphs that its kernels were generated from. Out: a verdict on each launch. The
modules that lie here compare with the program; read `compare.py` first.
"""
