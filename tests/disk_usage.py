"""What shutil.disk_usage returns."""

from __future__ import annotations

from typing import NamedTuple


class DiskUsage(NamedTuple):
    """Bytes of a disk."""

    total: int
    used: int
    free: int
