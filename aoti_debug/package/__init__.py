"""A compiled package, an exported program and their inputs, as data.

In: a `.pt2` file, unpacked safely and without torch. Out: the manifest (launch sites, arguments, kernels), the
reference graphs, the signature. Read `manifest.py` first.
"""
