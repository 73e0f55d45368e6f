"""The error of a kernel that cannot be interpreted."""

from __future__ import annotations


class NotInterpretableError(RuntimeError):
    """The kernel does something that the interpreter cannot do; the text says what."""
