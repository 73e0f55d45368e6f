"""Compares every launch of a run with what its program says: the graphs that its kernels were generated from."""
