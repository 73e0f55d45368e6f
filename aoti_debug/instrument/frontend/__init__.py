"""Makes sources of an exported program or of a compiled package: C++, kernel binaries, weights, flags.

`exported_program` and `compiled_package` are the two ways in.
"""
