"""The graphs that the kernels of a package were generated from, and the value that each buffer holds."""
