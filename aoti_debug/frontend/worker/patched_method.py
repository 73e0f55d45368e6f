"""Replaces a method of one of torch's classes for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def replaced(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Wraps a method inside the `with`; where this torch's class has no such method, nothing is done.

    Args:
        wrap: makes the new method of the one in the class's `__dict__`.
    """
    original = owner.__dict__.get(name)
    if original is None:
        yield
        return
    setattr(owner, name, wrap(original))
    try:
        yield
    finally:
        setattr(owner, name, original)
