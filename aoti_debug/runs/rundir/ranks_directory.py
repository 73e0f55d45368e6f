"""The directory of a run of ranks: one folder for each rank, a run directory of its own (docs/ranks.md).

BASE/
  20261120-231501-4711/        made by the first rank that comes
    ranks.json                 how many ranks there are, and of which launch
    rank0/ rank1/ …            run directories; .owner in each names its process
    .node-HOST                 the process that started the ranks there
  .ranks-0123456789abcdef -> 20261120-231501-4711

Ranks agree on the directory by the last link: its name is a hash of what they all know of their launch, and whoever
makes the link first decides. `runtime_shims/run/rank.cpp` does the same for packages that another program loads.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.current_rank import MAX_RANKS, Rank
from aoti_debug.base.machine.files import atomic_write, json_data, stamped_directories
from aoti_debug.base.machine.files.json_data import DamagedJsonError

NAME = "ranks.json"
FORMAT = 1

_RANK = re.compile(r"rank([0-9]{1,9})\Z")
_OWNER = ".owner"


@dataclass(frozen=True)
class RanksInfo:
    """The content of ranks.json.

    Attributes:
        world_size: the number of ranks that were started.
        run_id: torchrun's --rdzv-id.
        restart: the count of torchrun's restarts before this one.
        started: ISO 8601, by the clock of the rank that came first.
    """

    world_size: int
    run_id: str = ""
    restart: str = ""
    started: str = ""
    format: int = FORMAT


@dataclass(frozen=True)
class RanksDirectory:
    """A run of ranks on the disk.

    Attributes:
        ranks: the run directory of each rank that has one, by its number.
    """

    path: Path
    info: RanksInfo
    ranks: dict[int, Path]


def claim(base: Path, rank: Rank) -> Path:
    """Makes the run directory of this rank in the directory of its launch, which the first rank makes.

    A later run of the same process goes into another directory, which the other ranks find in the same way.

    Raises:
        NotADirectoryError: `base` is a file.
        OSError: it cannot be made.
    """
    stamped_directories.make_base(base)
    launcher = _launcher()
    stem = base.resolve() / f".ranks-{_key(rank, launcher)}"
    for attempt in count(1):
        link = stem if attempt == 1 else stem.with_name(f"{stem.name}-{attempt}")
        launch = _join(base, link, rank)
        if launch is None or not _belongs_to(launch, launcher):
            continue
        path = launch / f"rank{rank.number}"
        try:
            path.mkdir()
        except FileExistsError:
            continue
        (path / _OWNER).symlink_to(_identity(os.getpid()))
        break
    return path


def _join(base: Path, link: Path, rank: Rank) -> Path | None:
    """The directory beside a link that it leads to; without the link, a new one and the link to it.

    None if the link leads elsewhere: it is untrusted.
    """
    if not link.is_symlink():
        path = stamped_directories.create(base)
        started = datetime.now().astimezone().isoformat(timespec="seconds")
        atomic_write.write(path / NAME, ranks_json(RanksInfo(rank.world_size, rank.run_id, rank.restart, started)))
        try:
            link.symlink_to(path.name)
        except FileExistsError:
            stamped_directories.remove(path, None)
        else:
            stamped_directories.link_latest(path)
            return path
    name = os.readlink(link)
    path = link.parent / name
    return path if stamped_directories.is_name(name) and path.is_dir() and not path.is_symlink() else None


def _belongs_to(launch: Path, launcher: str) -> bool:
    """True if the ranks of this machine were started by this process in that launch; marks an unmarked launch."""
    mark = launch / f".node-{machine_name().replace('/', '_')}"
    try:
        mark.symlink_to(launcher)
    except FileExistsError:
        return os.readlink(mark) == launcher
    return True


def machine_name() -> str:
    """The name of this machine."""
    return os.uname().nodename


def _key(rank: Rank, launcher: str) -> str:
    """What all ranks of a launch know of it, and no other launch of this machine has, as 16 hexadecimal digits."""
    is_on_one_machine = rank.local_world_size == 0 or rank.local_world_size >= rank.world_size
    where = f"{machine_name()}\n{launcher}" if is_on_one_machine else rank.master
    return f"{_fnv1a(chr(10).join((where, rank.run_id, rank.restart, str(rank.world_size)))):016x}"


def _fnv1a(text: str) -> int:
    value = 0xCBF29CE484222325
    for byte in os.fsencode(text):
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def _launcher() -> str:
    """The process that started the ranks of this machine: the closest ancestor that is no rank itself.

    "unknown" where that is outside of this container.
    """
    pid = os.getpid()
    for _ in range(32):
        found = _stat(pid)
        if found is None:
            break
        pid = found[0]
        if pid <= 1 or not _is_rank_itself(pid):
            break
    return _identity(pid)


def _is_rank_itself(pid: int) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return b"\0RANK=" in b"\0" + environment


def _identity(pid: int) -> str:
    """A process as PID-START, which no other process of this machine has had since it was started."""
    found = _stat(pid)
    return "unknown" if found is None else f"{pid}-{found[1]}"


def _stat(pid: int) -> tuple[int, str] | None:
    """Parent and start time, in ticks since the machine was started; None where there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else (int(fields[1]), fields[19])


def is_one(path: Path) -> bool:
    """True if a directory is that of a run of ranks."""
    return stamped_directories.has(path, NAME)


def read(path: Path) -> RanksDirectory:
    """Reads the directory of a run of ranks.

    Raises:
        RunDirError: ranks.json is missing, damaged or of another version, or names more ranks than a launch can have.
    """
    try:
        info = json_data.read_file(path, NAME, _info, format_=FORMAT, hint="name one rank: DIR/rank0")
    except FileNotFoundError as error:
        raise RunDirError(
            f"{path} is no run of ranks: {NAME}: {error.strerror}", hint=f"aoti-debug show {shlex.quote(str(path))}"
        ) from error
    return RanksDirectory(path, info, folders(path))


def folders(path: Path) -> dict[int, Path]:
    """Returns the run directories of ranks in a directory, by the numbers of the ranks.

    Raises:
        OSError: it cannot be read.
    """
    found = ((_RANK.match(entry.name), entry) for entry in path.iterdir() if not entry.is_symlink())
    return dict(sorted((int(match[1]), entry) for match, entry in found if match))


def _info(data: Mapping[str, Any]) -> RanksInfo:
    info = json_data.from_data(RanksInfo, data)
    if not 0 < info.world_size <= MAX_RANKS:
        raise DamagedJsonError(f"{info.world_size} ranks are not 1 to {MAX_RANKS}")
    return info


def ranks_json(info: RanksInfo) -> str:
    """The text of ranks.json."""
    return json_data.to_text(info) + "\n"
