"""A bundle: one archive with everything that another person needs to understand a run or a triage."""

from __future__ import annotations

import io
import tarfile
import time
import zipfile
from pathlib import Path

from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write, results_home
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.runs.rundir.run_directory import ARCHIVES
from aoti_debug.views.bundle.contents import Contents, contents_of
from aoti_debug.views.redaction import RedactedPart
from aoti_debug.views.report.subject import ReportSubject


def default_name(subject: ReportSubject) -> str:
    """The archive's file name where the user gives none."""
    return f"{subject.what}_{subject.name}.zip"


def check_output(path: Path) -> None:
    """Checks the name of an archive before it is written.

    Raises:
        UsageError: the file already exists, or its ending is not that of an archive.
    """
    if not path.name.endswith(ARCHIVES):
        raise UsageError(f"{path} ends in none of {', '.join(ARCHIVES)}", hint="-o FILE.zip")
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} already exists", hint="remove it, or name another file with -o")


def write_archive(path: Path, contents: Contents) -> None:
    """Writes the archive.

    Raises:
        UsageError: the file exists by now, or it cannot be written.
    """
    write = _write_zip if path.name.endswith(".zip") else _write_tar
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write.create_file(path) as temporary:
            write(temporary, contents)
            temporary.chmod(0o644)
    except FileExistsError as error:
        raise UsageError(f"{path} already exists", hint="remove it, or name another file with -o") from error
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", hint="name another file with -o") from error


def _write_zip(file: Path, contents: Contents) -> None:
    now = time.localtime()[:6]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for item in contents.items:
            member = zipfile.ZipInfo(f"{contents.root}/{item.name}", now)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = 0o644 << 16
            archive.writestr(member, item.read())


def _write_tar(file: Path, contents: Contents) -> None:
    with tarfile.open(file, "w:gz") as archive:
        for item in contents.items:
            data = item.read()
            member = tarfile.TarInfo(f"{contents.root}/{item.name}")
            member.size, member.mtime, member.mode = len(data), int(time.time()), 0o644
            archive.addfile(member, io.BytesIO(data))


@dataclass(frozen=True)
class Bundle:
    """An archive that was written.

    Attributes:
        bytes: of the archive.
    """

    path: Path
    bytes: int
    contents: Contents


@dataclass(frozen=True)
class BundleOptions:
    """The archive to write, and what it leaves out.

    Attributes:
        output: ends in .zip, .tar.gz or .tgz; None for a .zip in the home.
        left_out: parts that are not packed.
    """

    output: Path | None = None
    left_out: tuple[RedactedPart, ...] = ()


def write_bundle(subject: ReportSubject, options: BundleOptions) -> Bundle:
    """Writes the archive, whole or not at all.

    Raises:
        UsageError: the file already exists, its name has another ending, or it cannot be written.
        RunDirError: a run is damaged.
    """
    path = options.output or ResultKind.BUNDLES.place() / default_name(subject)
    check_output(path)
    if options.output is None:
        try:
            results_home.prepare(path.parent)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}", hint="name another file with -o") from error
    contents = contents_of(subject, frozenset(options.left_out))
    write_archive(path, contents)
    return Bundle(path, path.stat().st_size, contents)
