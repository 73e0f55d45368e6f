"""The warnings about names on the command line that match nothing."""

from __future__ import annotations

from collections.abc import Sequence

from aoti_debug.manifest import Form, Manifest

_MAX_KERNELS = 20


def unmatched_warning(package: Manifest, unmatched: Sequence[str]) -> list[str]:
    """The warning in lines: filters that match no kernel, and the kernels that there are."""
    if not unmatched:
        return []
    kernels = sorted({site.kernel for site in package.sites})
    return [f"warning: no kernel matches {', '.join(unmatched)}; the package has:", *_listed(kernels)]


def unmatched_watch_warning(package: Manifest, unmatched: Sequence[str]) -> list[str]:
    """The warning in lines: watched names that no launch has, and those that there are."""
    if not unmatched:
        return []
    tensors = dict.fromkeys(arg.name for site in package.sites for arg in site.args if arg.form <= Form.POINTER)
    kernels = sorted({site.kernel for site in package.sites})
    first = f"warning: no argument and no kernel is named {', '.join(unmatched)}; the package has:"
    return [first, *_listed(list(tensors)), *_listed(kernels)]


def _listed(names: Sequence[str]) -> list[str]:
    lines = [f"  {name}" for name in names[:_MAX_KERNELS]]
    return lines + ([f"  and {len(names) - _MAX_KERNELS} more"] if len(names) > _MAX_KERNELS else [])
