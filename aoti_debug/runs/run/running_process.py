"""Running processes with instrumented packages: what they do, and the settings that they are asked to take.

The runtime in each package has a page of memory for that: runtime_shims/formats/control_format.h.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path

from aoti_debug.base.abi import Struct
from aoti_debug.base.errors import TargetError, UsageError
from aoti_debug.base.frozen import dataclass

MAGIC = b"AOTIDBP1"
VERSION = 1
PAGE = Struct(
    "ControlPage",
    "magic:8s version:I requested:I accepted:I delay:I level:I last_site:I calls:Q launches:Q settings_bytes:Q runs:Q "
    "run_directory:1024s library:976s settings:2032s",
)
STRUCTS = (PAGE,)
PAGE_FILE = "/memfd:aoti-debug-control"
_LONGEST = 2031  # bytes of settings


class ControlDelay(Enum):
    """The reason why a request is not in force yet."""

    NONE = 0
    CALLS = 1
    CAPTURED = 2


@dataclass(frozen=True)
class PackageState:
    """The state of an instrumented package in a running process.

    Attributes:
        requested, accepted: the number of requests, and of the one in force.
        delay: why they differ.
        level: in force; before the first call 0.
        last_site: the index in the manifest's sites of the launch that began last in the run.
        calls: of the model that have begun.
        launches: that have begun in the run.
        runs: that have begun.
        run_directory: of the run; None if none has begun since the last request, or nothing is recorded.
        library: the file that was loaded.
    """

    requested: int
    accepted: int
    delay: ControlDelay
    level: int
    last_site: int
    calls: int
    launches: int
    runs: int
    run_directory: Path | None
    library: Path

    @property
    def model(self) -> str:
        """The name of the model: torch unpacks each model of a package to a folder of its name."""
        return self.library.parent.name if self.library.parent.parent.name == "aotinductor" else self.library.name


class ControlPage:
    """The control page of an instrumented package in a running process.

    Args:
        path: the file that the process keeps open.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is none of this version.
    """

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._memory = mmap.mmap(descriptor, PAGE.size)
        finally:
            os.close(descriptor)
        magic, version = struct.unpack_from("<8sI", self._memory)
        if (magic, version) != (MAGIC, VERSION):
            self._memory.close()
            raise ValueError(f"{path} has version {version} of the control page, this aoti-debug has {VERSION}")

    def close(self) -> None:
        """Forgets the page."""
        self._memory.close()

    def read(self) -> PackageState:
        """The state now."""
        return _state(self._memory)

    def request(self, settings: Mapping[str, str]) -> None:
        """Asks for settings: a later call of the model begins a run with them.

        Args:
            settings: values of environment variables; "" for one that is not to be set. They replace those of earlier
                requests.

        Raises:
            UsageError: they are too long.
        """
        text = "".join(f"{name}={value}\n" for name, value in settings.items()).encode()
        if len(text) > _LONGEST:
            raise UsageError(f"the settings have {len(text)} bytes, {_LONGEST} are possible", hint="fewer patterns")
        if any("\n" in value for value in settings.values()):
            raise UsageError("a setting has a line break")
        self._put("settings", text)
        self._put("settings_bytes", struct.pack("<Q", len(text)))
        self._put("requested", struct.pack("<I", (self.read().requested + 1) & 0xFFFFFFFF))

    def _put(self, name: str, value: bytes) -> None:
        before = "".join(form for field, form in PAGE.fields[: [field for field, _ in PAGE.fields].index(name)])
        offset = struct.calcsize(f"<{before}")
        self._memory[offset : offset + len(value)] = value


def state_in(page: bytes) -> PackageState | None:
    """The state that the content of a control page says; None if it is none of this version."""
    if len(page) < PAGE.size or struct.unpack_from("<8sI", page) != (MAGIC, VERSION):
        return None
    return _state(page)


def _state(page: bytes | mmap.mmap) -> PackageState:
    fields = dict(zip((name for name, _ in PAGE.fields), PAGE.codec.unpack_from(page), strict=True))
    directory = _text(fields["run_directory"])
    return PackageState(
        requested=fields["requested"],
        accepted=fields["accepted"],
        delay=ControlDelay(fields["delay"]),
        level=fields["level"],
        last_site=fields["last_site"],
        calls=fields["calls"],
        launches=fields["launches"],
        runs=fields["runs"],
        run_directory=Path(directory) if directory else None,
        library=Path(_text(fields["library"])),
    )


def _text(field: bytes) -> str:
    return os.fsdecode(field.partition(b"\0")[0])


@contextlib.contextmanager
def control_pages(pid: int) -> Iterator[tuple[ControlPage, ...]]:
    """The pages of all instrumented packages of a process, those that were loaded first before others.

    Raises:
        TargetError: there is no such process, the system denies access to it, or it has no instrumented package.
    """
    with contextlib.ExitStack() as opened:
        pages = tuple(opened.enter_context(contextlib.closing(page)) for page in _open_pages(pid))
        if not pages:
            raise TargetError(
                f"process {pid} has loaded no instrumented package",
                hint="aoti-debug build makes one of a model, which the process has to load; without: gcore "
                f"{pid} writes a core file, which aoti-debug triage reads with --package",
            )
        yield pages


def _open_pages(pid: int) -> list[ControlPage]:
    folder = Path(f"/proc/{pid}/fd")
    try:
        files = sorted(folder.iterdir(), key=lambda file: int(file.name))
    except FileNotFoundError as error:
        raise TargetError(f"there is no process {pid}", hint="ps -ef lists processes") from error
    except PermissionError as error:
        raise _denied(pid) from error
    pages = []
    for file in files:
        try:
            if os.readlink(file).startswith(PAGE_FILE):
                pages.append(ControlPage(file))
        except FileNotFoundError:  # closed meanwhile
            continue
        except ValueError as error:
            raise TargetError(str(error), hint="build the package again with this aoti-debug") from error
        except PermissionError as error:
            raise _denied(pid) from error
    return pages


def _denied(pid: int) -> TargetError:
    return TargetError(f"the system denies access to the files of process {pid}", hint="use its own account, or root")


def resident_bytes(pid: int) -> int | None:
    """The host memory that a process has in RAM; None if it has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def is_alive(pid: int) -> bool:
    """True if the process runs; False for a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
