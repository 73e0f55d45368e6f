"""A bundle: one archive with everything that another person needs to understand a run or a triage."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.views.bundle.archive import check_output, default_name, write_archive
from aoti_debug.views.bundle.contents import Contents, contents_of
from aoti_debug.views.report.redaction import RedactedPart
from aoti_debug.views.report.subject import ReportSubject


@dataclass(frozen=True)
class Bundle:
    """An archive that was written.

    Attributes:
        bytes: of the archive.
    """

    path: Path
    bytes: int
    contents: Contents


def write_bundle(subject: ReportSubject, output: Path | None = None, parts: Collection[RedactedPart] = ()) -> Bundle:
    """Writes the archive, whole or not at all.

    Args:
        output: ends in .zip, .tar.gz or .tgz; None for a .zip in the working directory.
        parts: what is left out.

    Raises:
        UsageError: the file already exists, its name has another ending, or it cannot be written.
        RunDirError: a run is damaged.
    """
    path = output or Path(default_name(subject))
    check_output(path)
    contents = contents_of(subject, frozenset(parts))
    write_archive(path, contents)
    return Bundle(path, path.stat().st_size, contents)
