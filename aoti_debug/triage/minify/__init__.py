"""Finds the smallest part of a program that still shows its finding, as a script that needs only torch.

Begin with `minify`.
"""
