"""The warning about kernel filters that match nothing."""

from __future__ import annotations

from collections.abc import Sequence

from aoti_debug.manifest import Manifest

_LISTED = 20  # kernels


def unmatched_warning(package: Manifest, unmatched: Sequence[str]) -> list[str]:
    """Which filters match nothing, and what there is to match."""
    if not unmatched:
        return []
    kernels = sorted({site.kernel for site in package.sites})
    lines = [f"warning: no kernel matches {', '.join(unmatched)}; there are:"]
    lines += [f"  {kernel}" for kernel in kernels[:_LISTED]]
    return lines + ([f"  and {len(kernels) - _LISTED} more"] if len(kernels) > _LISTED else [])
