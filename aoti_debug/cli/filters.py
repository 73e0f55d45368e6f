"""The warning about kernel filters that match nothing."""

from __future__ import annotations

from collections.abc import Sequence

from aoti_debug.manifest import Manifest

_MAX_KERNELS = 20


def unmatched_warning(package: Manifest, unmatched: Sequence[str]) -> list[str]:
    """The warning in lines: filters that match no kernel, and the kernels that there are."""
    if not unmatched:
        return []
    kernels = sorted({site.kernel for site in package.sites})
    lines = [f"warning: no kernel matches {', '.join(unmatched)}; the package has:"]
    lines += [f"  {kernel}" for kernel in kernels[:_MAX_KERNELS]]
    return lines + ([f"  and {len(kernels) - _MAX_KERNELS} more"] if len(kernels) > _MAX_KERNELS else [])
