"""What one look at the machine found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Status(str, Enum):
    OK = "ok"
    WARNING = "warning"  # something will be slower, or say less
    MISSING = "missing"


@dataclass(frozen=True)
class Check:
    """
    Attributes:
        found: what is there, a few words.
        todo: what to do about it; "" where nothing has to be done.
        needed: without it no package can be built or run here.
    """

    name: str
    status: Status
    found: str
    todo: str = ""
    needed: bool = False


def ok(name: str, found: str) -> Check:
    return Check(name, Status.OK, found)


def warning(name: str, found: str, todo: str) -> Check:
    return Check(name, Status.WARNING, found, todo)


def missing(name: str, found: str, todo: str) -> Check:
    return Check(name, Status.MISSING, found, todo)


def needed(name: str, found: str, todo: str) -> Check:
    """Something that is missing, and without which nothing works."""
    return Check(name, Status.MISSING, found, todo, needed=True)
