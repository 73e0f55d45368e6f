"""Makes things once a session, however many processes the tests are spread over."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from filelock import FileLock

T = TypeVar("T")


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], T]) -> T:
    """What `make` returns of an empty folder: the first process makes it, the others wait and read it.

    Args:
        name: that of the folder begins so.
    """
    base = factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "once"
    shared.mkdir(exist_ok=True)
    made = shared / f"{name}.pickle"
    with FileLock(shared / f"{name}.lock"):
        if not made.exists():
            folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=shared))  # another one if the last attempt failed
            part = made.with_suffix(".part")
            part.write_bytes(pickle.dumps(make(folder)))
            part.rename(made)
    result: T = pickle.loads(made.read_bytes())
    return result
