"""The HTML page of a run's memory: a picture of each call's bytes over its launches, and the tables."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.machine.files import page_file
from aoti_debug.views.memory.document import document
from aoti_debug.views.memory.memory import RunMemory
from aoti_debug.views.memory.picture import HEIGHT, WIDTH, picture
from aoti_debug.views.memory.text import at_peak, facts
from aoti_debug.views.report.page import PageParts, render

NAME = "report/memory.html"
_PARTS = PageParts("memory.html", (), ("report.css",), ())
MAX_CALLS = 20  # pictures; those with the highest peaks


def page(found: RunMemory) -> str:
    """The text of the page."""
    title, *rest = facts(found)
    calls = sorted(found.memory.calls, key=lambda call: -call.peak_bytes)[:MAX_CALLS]
    pictures = [
        {
            "call": call.launches[0].id.partition(".")[0],
            "launches": len(call.launches),
            "peak": wording.byte_size(call.peak_bytes),
            "peak_launch": call.launches[call.peak].id,
            "picture": picture(call),
        }
        for call in calls
    ]
    columns, *rows = at_peak(found)
    values = {
        "name": found.run.path.name,
        "title_text": title,
        "facts": rest,
        "pictures": pictures,
        "hidden": len(found.memory.calls) - len(calls),
        "width": WIDTH,
        "height": HEIGHT,
        "columns": columns,
        "rows": rows,
    }
    return render(_PARTS, document(found), values)


def write(found: RunMemory, output: Path | None = None) -> Path:
    """Writes the page of a run's memory over an older one; returns its path.

    Args:
        output: the file; None for report/memory.html in the run.

    Raises:
        UsageError: the file cannot be written.
    """
    return page_file.write(page(found), output, found.run.path / NAME)
