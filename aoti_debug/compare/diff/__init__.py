"""Compares two runs launch by launch: where they part although their inputs are equal."""
