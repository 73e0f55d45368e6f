"""Finds the smallest part of a program that still shows a finding, and writes it as a script that needs only torch."""
