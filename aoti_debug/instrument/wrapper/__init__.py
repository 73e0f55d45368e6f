"""Reads the C++ that Inductor generates: launches, arguments, roles, kernels, provenance, allocations, races.

Begin with `analysis`.
"""
