"""Replaces a method of one of torch's classes for a while."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def replaced(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Wraps a method inside the `with`; where this torch's class has no such method, nothing is done.

    Args:
        wrap: makes the new method of the one in a `__dict__`: of the class, or of the one that it inherits it from.
    """
    original = inspect.getattr_static(owner, name, None)
    if original is None:
        yield
        return
    is_own = name in vars(owner)
    setattr(owner, name, wrap(original))
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)
