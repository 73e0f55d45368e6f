"""`.pt2` archives without torch: their kind, safe unpacking, hashes of kernels.

`trust` decides if their code may be executed.
"""
