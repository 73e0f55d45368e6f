"""The command line: the only layer that prints, exits, or imports click."""
