"""The functions that launches call: prototypes, operators, Triton functions, sources of kernels."""
