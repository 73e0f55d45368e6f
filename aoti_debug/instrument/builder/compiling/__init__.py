"""Compiles and links the library of a package: kernels, wrapper, runtime, tables of launch sites.

Begin with `compile_library`.
"""
