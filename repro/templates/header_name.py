"""The file name of the precompiled header of a package's kernels, in `build/`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def header_name(torch_version: str, flags: Sequence[str]) -> str:
    """Returns a name that other flags do not have: g++ crashes over a header that other flags have made."""
    key = hashlib.sha256("\0".join(flags).encode()).hexdigest()[:16]
    return f"torch-{torch_version}-{key}.h"
