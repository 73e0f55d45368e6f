"""The kind of finding that is a failed build."""

from __future__ import annotations

from aoti_debug.runs.diagnosis.findings import FindingKind

BUILD_FAILURE = FindingKind(
    "build_failure", "a part of the build fails, crashes or never ends", "BUILD FAILURE", "build failure", "⚒"
)
