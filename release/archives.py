"""The sdist and the wheel as functions of their files: the same bytes on every machine, at any time."""

from __future__ import annotations

import gzip
import os
import tarfile
import time
from pathlib import Path

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.sdist import sdist


class ReproducibleSdist(sdist):
    """Writes the archive with members in order, and no owner, umask or time of this machine.

    The time of all members is SOURCE_DATE_EPOCH, seconds since 1970; without it, now.
    """

    def make_archive(
        self,
        base_name: str,
        format: str,
        root_dir: str | None = None,
        base_dir: str = ".",
        **_: object,
    ) -> str:
        """Writes BASE_NAME.tar.gz of a directory; its name. No owner is kept, so that of the caller does not count.

        Raises:
            ValueError: another format is asked for.
        """
        if format != "gztar":
            raise ValueError(f"an sdist is a .tar.gz, not {format}")
        now = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())

        def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = now
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            return member

        name = f"{base_name}.tar.gz"
        with (
            open(name, "wb") as file,
            gzip.GzipFile("", "wb", mtime=now, fileobj=file) as compressed,
            tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT, dereference=True) as archive,
        ):
            folder = Path(root_dir or ".") / base_dir
            for path in (folder, *sorted(folder.rglob("*"))):
                archive.add(path, path.relative_to(root_dir or "."), recursive=False, filter=plain)
        return name


class ReproducibleWheel(bdist_wheel):
    """Makes files whose permissions do not depend on the umask; their time is SOURCE_DATE_EPOCH as in any wheel."""

    def run(self) -> None:
        """Builds the wheel."""
        before = os.umask(0o022)
        try:
            super().run()
        finally:
            os.umask(before)
