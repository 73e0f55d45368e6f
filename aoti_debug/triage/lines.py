"""Which of the model's lines that were fused into one kernel reads by an index, and which one makes the index."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aoti_debug.launches import Launch
from aoti_debug.manifest import Frame

_SUBSCRIPT = re.compile(r"[\w)\]]\[([^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*)\]")
_READS = re.compile(
    r"\b(?:gather|embedding\w*|emb|index_\w+|take\w*|scatter\w*|masked_scatter\w*|lookup)\(((?:[^()]|\([^()]*\))*)"
)
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_NO_TENSORS = frozenset({"self", "None", "True", "False", "torch", "dim", "int", "len", "range", "slice"})


def of_access(launch: Launch) -> Frame | None:
    """The line that reads or writes by an index; the first line where none says so, None where none is known."""
    frames = launch.site.provenance.source
    return next((frame for frame in frames if indices(frame.text)), frames[0] if frames else None)


def of_index(launch: Launch, access: Frame | None) -> Frame | None:
    """The line of a launch that makes the index of an access.

    Args:
        access: the line that has the access, of this launch or a later one.
    """
    frames = launch.site.provenance.source
    wanted = indices(access.text) if access is not None else ()
    for name in wanted:
        makes = re.compile(rf"\s*{re.escape(name)}\s*(?::[^=]*)?=[^=]")
        if (found := next((frame for frame in frames if makes.match(frame.text)), None)) is not None:
            return found
    return access if access in frames else (frames[0] if frames else None)


def indices(text: str) -> Sequence[str]:
    """Names of what a line of Python uses as indices, in order."""
    inside = [m.group(1) for m in _SUBSCRIPT.finditer(text)] + [m.group(1) for m in _READS.finditer(text)]
    names = (name for part in inside for name in _NAME.findall(part))
    return tuple(dict.fromkeys(name for name in names if name not in _NO_TENSORS))
