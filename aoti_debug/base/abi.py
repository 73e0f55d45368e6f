"""The Python side of runtime_shims/aoti_debug.h and runtime_shims/formats/journal_format.h.

Their numbers and records, and the environment variables: tests/base/test_abi.py compares every enum and struct with its
counterpart in the two headers. The enums that the manifest needs too (form, role, C type) are in manifest.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import Enum, IntFlag
from functools import cached_property
from pathlib import Path

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass

ABI_VERSION = 1
JOURNAL_MAGIC = b"AOTIDBJ1"
JOURNAL_VERSION = 1
BLOCK_BYTES = 65536
BLOCK_MAGIC = 0x4B4C4231
MAX_DIMS = 64
CRUMB_MAGIC = b"AOTIDBC1"
CRUMB_VERSION = 1


class Variable(str, Enum):
    """Environment variables that configure the runtime."""

    LEVEL = "AOTI_DEBUG_LEVEL"
    FILTER = "AOTI_DEBUG_FILTER"
    MODULE = "AOTI_DEBUG_MODULE"
    LINE = "AOTI_DEBUG_LINE"
    DIR = "AOTI_DEBUG_DIR"
    HOME = "AOTI_DEBUG_HOME"
    RUN = "AOTI_DEBUG_RUN"
    PHASE = "AOTI_DEBUG_PHASE"
    MAX_BYTES = "AOTI_DEBUG_MAX_BYTES"
    MAX_FILES = "AOTI_DEBUG_MAX_FILES"
    MAX_TENSOR_BYTES = "AOTI_DEBUG_MAX_TENSOR_BYTES"
    KEEP_FREE_BYTES = "AOTI_DEBUG_KEEP_FREE_BYTES"
    JOURNAL_BYTES = "AOTI_DEBUG_JOURNAL_BYTES"
    CRUMB_EVERY = "AOTI_DEBUG_CRUMB_EVERY"
    LAUNCH = "AOTI_DEBUG_LAUNCH"
    FLIGHT = "AOTI_DEBUG_FLIGHT"
    FLIGHT_BYTES = "AOTI_DEBUG_FLIGHT_BYTES"
    SUMMARIES = "AOTI_DEBUG_SUMMARIES"
    SUMMARIES_BYTES = "AOTI_DEBUG_SUMMARIES_BYTES"
    PRINT = "AOTI_DEBUG_PRINT"
    BACKTRACE = "AOTI_DEBUG_BACKTRACE"
    GUARDS = "AOTI_DEBUG_GUARDS"
    POISON = "AOTI_DEBUG_POISON"
    WATCH = "AOTI_DEBUG_WATCH"
    ON_HIT = "AOTI_DEBUG_ON_HIT"
    INSPECT = "AOTI_DEBUG_INSPECT"
    RANKS = "AOTI_DEBUG_RANKS"
    SUBSTITUTE = "AOTI_DEBUG_SUBSTITUTE"
    JITTER = "AOTI_DEBUG_JITTER"
    WEIGHTS = "AOTI_DEBUG_WEIGHTS"
    # Of Inductor's intermediate value printer; used if the ones above are not set.
    PRINTER_LEVEL = "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER"
    PRINTER_FILTER = "AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT"


_OWN_VARIABLES = "AOTI_DEBUG_"


def unknown_variables(names: Iterable[str]) -> list[str]:
    """A warning for each name of a variable that looks like one of ours and is none, with the most similar one."""
    known = [variable.value for variable in Variable]
    unknown = sorted(name for name in names if name.startswith(_OWN_VARIABLES) and name not in known)
    if not unknown:
        return []
    import difflib  # few environments need it

    lines = []
    for name in unknown:
        similar = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
        lines.append(f"warning: {name} is not known" + (f"; perhaps {similar[0]}" if similar else ""))
    return lines


class Level(int, Enum):
    """A recording level; HASH is written "hash" and records the hash of every tensor, and nothing else of it."""

    OFF = 0
    SAVE = 1
    VALUES = 2
    NAMES = 3
    HASH = 4


class CallKind(int, Enum):
    """The kind of a call: the model, or its constant folding."""

    MODEL = 0
    CONSTANT = 1


class Action(int, Enum):
    """The use that the runtime tells generated code to make of a launch."""

    RUN = 0
    SKIP = 1
    STOP = 2


class RecordType(int, Enum):
    """The type of a journal record."""

    CALL_BEGIN = 1
    CALL_END = 2
    LAYOUT = 3
    LAUNCH_BEGIN = 4
    GRID = 5
    LAUNCH_END = 6
    TENSOR_FILE = 7
    TENSOR_STATS = 8
    FAULT = 9
    NOTE = 10
    RUN_END = 11
    GUARD = 12
    WATCH = 16
    WATCH_HIT = 17
    WATCH_COUNT = 18
    PRINT = 19
    REPLAY_STATS = 20
    CLOCK = 21


class ValueTag(int, Enum):
    """The kind of a recorded argument value."""

    UNSET = 0
    NULL = 1
    TENSOR = 2
    NUMBER = 3
    TEXT = 4
    OPAQUE = 5
    UNDEFINED = 6


class CallFlag(IntFlag):
    """Flags of a CALL_BEGIN record."""

    CAPTURING = 1


class RunEndFlag(IntFlag):
    """Flags of a RUN_END record."""

    CUT_SHORT = 1  # the recording had stopped before


class LaunchFlag(IntFlag):
    """Flags of a LAUNCH_END record."""

    NOT_STARTED = 1
    CRUMB = 2


class StatsFlag(IntFlag):
    """Flags of a TENSOR_STATS record."""

    UNINITIALISED = 1
    SKIPPED = 2
    HASH_ONLY = 4


class Phase(int, Enum):
    """The time at which a tensor is read: before or after its launch."""

    BEFORE = 0
    AFTER = 1


class SaveStatus(int, Enum):
    """The result of saving a tensor; LINKED is a hard link to an equal file, REFERRED to a weight in its own file."""

    WRITTEN = 0
    LINKED = 1
    SKIPPED = 2
    REFERRED = 3


class FaultDomain(int, Enum):
    """The source of a fault: a C++ exception, an AOTITorchError of the C shim, or a CUresult."""

    EXCEPTION = 1
    SHIM = 2
    CUDA = 3


class WatchStatistic(int, Enum):
    """A statistic that a watchpoint compares; from NAN on they count elements."""

    NUMBER = 0
    MIN = 1
    MAX = 2
    ABSMAX = 3
    MEAN = 4
    STD = 5
    NAN = 6
    INF = 7
    POSINF = 8
    NEGINF = 9
    NONFINITE = 10
    ZEROS = 11
    NUMEL = 12


class WatchAction(IntFlag):
    """The actions of a hit of a watchpoint: flags of a WATCH_HIT record."""

    SAVE = 1
    STACK = 2
    STOP = 4
    TALLY = 8


class NoteCode(int, Enum):
    """The subject of a note of the runtime."""

    RECORDING_STOPPED = 1
    CAPTURING = 2
    CONFIGURATION = 3
    CRUMBS_OFF = 4
    FLIGHT_OFF = 5
    GUARDS = 6
    WEIGHTS = 7
    SUBSTITUTED = 8
    NOT_SUBSTITUTED = 9
    STOPPED = 10
    WATCH_UNREAD = 11
    GPU_CORE = 12


@dataclass(frozen=True)
class Struct:
    """A C struct of fixed-width little-endian fields without padding.

    Fields whose name starts with `reserved` are skipped by `codec`: it packs and unpacks the others only.

    Attributes:
        text: the fields in the order of the header, each NAME:FORMAT with a format of the `struct` module.
    """

    name: str
    text: str

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """The name and the format of each field."""
        return tuple((name, form) for name, _, form in (field.partition(":") for field in self.text.split()))

    @cached_property
    def codec(self) -> struct.Struct:
        """The packer and unpacker of the fields that are not reserved."""
        return struct.Struct(
            "<" + "".join(f"{struct.calcsize(f)}x" if n.startswith("reserved") else f for n, f in self.fields)
        )

    @cached_property
    def size(self) -> int:
        """The size in bytes."""
        return self.codec.size

    def read_header(self, path: Path, data: bytes | memoryview, magic: bytes, version: int) -> tuple[int, ...]:
        """Reads the header at the beginning of a file; returns its fields after `magic` and `version`.

        Raises:
            RunDirError: the file is shorter, or has another version.
        """
        if len(data) < self.size:
            raise RunDirError(f"{path} is truncated: it ends within its header", hint="run the package again")
        actual_magic, actual, *fields = self.codec.unpack_from(data)
        if (actual_magic, actual) != (magic, version):
            raise RunDirError(
                f"{path} has version {actual}; this aoti-debug reads version {version}",
                hint="read it with the version of aoti-debug that built the package",
            )
        return tuple(fields)


JOURNAL_HEADER = Struct(
    "JournalHeader",
    "magic:8s version:I block_bytes:I pid:I level:I start_unix_ns:Q blocks_reused:Q crumb_every:Q "
    "lost_records:Q open_calls:Q",
)
BLOCK_HEADER = Struct("BlockHeader", "magic:I thread:I sequence:Q")
RECORD_HEADER = Struct("RecordHeader", "size:I type:H flags:H time_ns:Q")
CALL_BEGIN = Struct("CallBegin", "call:I kind:B level:B stream_slot:H model:Q stream:Q")
CALL_END = Struct("CallEnd", "call:I kind:B failed:B reserved:H launches:I reserved2:I")
WALL_CLOCK = Struct("WallClock", "unix_ns:Q")
LAYOUT = Struct("Layout", "id:I dtype:i device_type:h device_index:h layout:h ndim:H storage_offset:q storage_bytes:q")
SLOT_VALUE = Struct("SlotValue", "tag:B type:B slot:H layout:I bits:Q")
LAUNCH_BEGIN = Struct(
    "LaunchBegin",
    "call:I kind:B n_loops:B stream_slot:H launch:I site:I sequence:I n_values:I loops:4I",
)
GRID = Struct("Grid", "call:I launch:I kernel:I kind:B reserved:3B grid:3I num_warps:I shared_bytes:I n_arguments:I")
LAUNCH_END = Struct("LaunchEnd", "call:I launch:I status:i kind:B reserved:B n_values:H")
TENSOR_FILE = Struct(
    "TensorFile",
    "call:I launch:I slot:H kind:B phase:B status:B reserved:3B bytes:Q hash:2Q path_bytes:I reason_bytes:I",
)
TENSOR_STATS = Struct(
    "TensorStats",
    "call:I launch:I slot:H kind:B phase:B integer:B reserved:3B numel:Q n_nan:Q n_pos_inf:Q n_neg_inf:Q n_zero:Q "
    "min_bits:Q max_bits:Q min_index:Q max_index:Q mean:d std:d hash:Q value_bytes:I layout:I",
)
REPLAY_STATS = Struct("ReplayStats", "replay:I begun:I")
FAULT = Struct("Fault", "call:I launch:I kind:B in_launch:B domain:H code:i text_bytes:I reserved:I")
GUARD_DAMAGE = Struct(
    "GuardDamage",
    "call:I launch:I allocation:I kind:B reserved:3B data:Q bytes:Q first:q last:q damaged:Q found:16B",
)
PRINT = Struct("Print", "call:I launch:I text_bytes:I kind:B reserved:3B")
WATCH = Struct("Watch", "watch:I text_bytes:I")
WATCH_HIT = Struct(
    "WatchHit",
    "call:I launch:I site:I watch:I thread:I slot:H kind:B phase:B statistic:I replay:I element:q value:d number:Q",
)
WATCH_COUNT = Struct("WatchCount", "watch:I unread:I hits:Q evaluated:Q")
NOTE = Struct("Note", "code:I text_bytes:I")
CRUMB_HEADER = Struct("CrumbHeader", "magic:8s version:I n_slots:I every:Q reserved:5Q")
CRUMB_SLOT = Struct("CrumbSlot", "completed:I used:I stream:Q replays:I reserved0:I reserved:5Q")

STRUCTS = tuple(value for value in tuple(globals().values()) if isinstance(value, Struct))
