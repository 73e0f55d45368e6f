"""The policies of a triage for infinities."""

from __future__ import annotations

from enum import Enum


class Infinities(str, Enum):
    """The policy for unintended infinities. NaN is always checked."""

    IGNORE = "ignore"
    WARN = "warn"
    FAIL = "fail"
