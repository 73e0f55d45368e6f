"""The kind of the findings of this folder."""

from __future__ import annotations

from aoti_debug.runs.diagnosis.findings import FindingKind

CONTRACT = FindingKind("contract", "a tensor is not what was promised", "BROKEN CONTRACT", "broken contract", "≠")
