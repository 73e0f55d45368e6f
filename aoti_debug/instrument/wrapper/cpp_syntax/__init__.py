"""Reads C++ as text: tokens, functions, calls, expressions, declarations."""
