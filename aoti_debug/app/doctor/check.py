"""The result of one check of the machine."""

from __future__ import annotations

from enum import Enum

from aoti_debug.base.lazy.dataclass import dataclass


class Status(str, Enum):
    """The outcome of a check."""

    OK = "ok"
    WARNING = "warning"  # usable, but slower or with less information
    MISSING = "missing"


@dataclass(frozen=True)
class MachineCheck:
    """The result of one check.

    Attributes:
        found: a few words about what is installed, or the problem.
        todo: what to do about it; "" if nothing has to be done.
        needed: True if no package can be built or run here without it.
    """

    name: str
    status: Status
    found: str
    todo: str = ""
    needed: bool = False


def ok(name: str, found: str) -> MachineCheck:
    """A check that passed."""
    return MachineCheck(name, Status.OK, found)


def warning(name: str, found: str, todo: str) -> MachineCheck:
    """A check that found a limitation."""
    return MachineCheck(name, Status.WARNING, found, todo)


def missing(name: str, found: str, todo: str) -> MachineCheck:
    """A check of something optional that is missing."""
    return MachineCheck(name, Status.MISSING, found, todo)


def missing_required(name: str, found: str, todo: str) -> MachineCheck:
    """A check of something that is missing and required to build or run packages."""
    return MachineCheck(name, Status.MISSING, found, todo, needed=True)
