"""Has calls of the runtime to the system fail, one after the other, and looks at what comes of it.

`injected/host.cpp` calls a package as a program does, in a process of its own for each point. Only the runtime in it is
linked so that its calls can fail.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any

from aoti_debug.base.errors import AotiDebugError
from aoti_debug.instrument.builder.compiling.runtime_objects import CPU_UNIT, OPTIMIZE_OTHERS
from aoti_debug.package.argument_values import Tensor
from aoti_debug.runs.diagnosis.output_values import has_gaps
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.formats import journal_records as records
from aoti_debug.runs.rundir.formats import shared_files
from tests import factories
from tests.kept import contents, kept
from tests.runtime_shims.runtime_library import FLAGS, GXX, HERE, SHIMS, _run, any_runtime, compiled
from tests.runtime_shims_cuda import device_library

SOURCES = HERE / "injected"
SANITIZED = HERE / "sanitized"
SMALL, LARGE = "2", "18"  # types of a model of sanitized/package.cpp: the tensors of a call have 48 bytes, or a MiB
MEMORY, SYSTEM, DEVICE = range(3)  # FaultClass of injected/faults.h
EVERY = 2**63  # so many calls fail: all that follow
NONE = 2**64 - 1  # the number of a call that is never made
ERRORS = 5  # the most errors that a call can end with
DRIVER_ERRORS = 3  # that a call of the driver can end with
SHORT = 3  # the choice of a short write, of the errors of one
KEPT = ("EINTR", "half")  # errors after which nothing may be missing
_GROWING = 3  # processes
_BATCH = 25  # points of one host
GROWTH = (0, 1 << 16, 4096)  # descriptors, mapped bytes, bytes of the heap that a round may leave more than the usual
# Compilers differ in what they warn of; with checks of the C library, the threads of the fake device may not jump.
_FLAGS = [*(flag for flag in FLAGS if not flag.startswith("-W")), "-U_FORTIFY_SOURCE"]
_WRAPPED = re.compile(
    r"\b__wrap_(\w+)\(|^FAILING\([^,]+, (\w+),|^(?:FAILING_ERROR|FAILING_DRIVER|LOCKED_DRIVER)\((\w+),", re.MULTILINE
)
_DRIVER_ERRORS = {2: "OUT_OF_MEMORY", 801: "NOT_SUPPORTED", 999: "UNKNOWN"}


@dataclass(frozen=True)
class Built:
    """A host and its package, and the names of the package's functions by where they begin."""

    host: Path
    plain: Path
    package: Path
    functions: Sequence[tuple[int, str]]

    def function_at(self, offset: int) -> str:
        """The function that has an address of the package's."""
        return next((name for begin, name in reversed(self.functions) if begin <= offset), "?")


class Machine(Enum):
    """What the runtime of a package is for."""

    CPU = "cpu"
    FAKE = "a fake device in place of the runtime's half for devices"
    DRIVER = "CUDA, on a fake driver"


@dataclass(frozen=True)
class Setting:
    """What the host does, and what is recorded of it.

    Attributes:
        variables: of the runtime, without their prefix.
        host: variables of the host: HOST_DEVICE, HOST_FAULT, HOST_FORKS.
        machine: where there is a device, which one.
    """

    name: str
    variables: Mapping[str, str]
    host: Mapping[str, str] = field(default_factory=dict)
    machine: Machine = Machine.CPU


_FLIGHT = {"LEVEL": "3", "FLIGHT": "8", "FLIGHT_BYTES": "1M", "PRINT": "none"}
_WATCH = {"LEVEL": "3", "WATCH": "y: zeros < 5; *: nan", "ON_HIT": "save,stack"}
_DEVICE = {"HOST_DEVICE": "1"}
SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("names", {"LEVEL": "3"}),
        Setting("tensors", {"LEVEL": "1", "PHASE": "both", "FILTER": "aoti_torch_cpu_make"}),
        Setting("tensors of a MiB", {"LEVEL": "1", "FILTER": "triton_*"}, {"HOST_TYPE": LARGE}),
        Setting("limits", {"LEVEL": "1", "MAX_BYTES": "300K", "MAX_FILES": "40", "JOURNAL_BYTES": "600K"}),
        Setting("statistics, guards", {"LEVEL": "2", "GUARDS": "1"}),
        Setting("hashes, summaries", {"LEVEL": "hash", "SUMMARIES": "1", "PRINT": "none"}),
        Setting("watchpoints", _WATCH),
        Setting("flight recorder", _FLIGHT),
        Setting("a launch fails", _FLIGHT, {"HOST_FAULT": "2"}),
        Setting("a launch throws", {"LEVEL": "3"}, {"HOST_FAULT": "1"}),
        Setting("a fork", {"LEVEL": "3"}, {"HOST_FORKS": "1"}),
        Setting("one of two ranks", {"LEVEL": "3"}, {"RANK": "1", "WORLD_SIZE": "2"}),
        Setting("tensors of a device", {"LEVEL": "1", "FILTER": "aoti_torch_cpu_add"}, _DEVICE, Machine.FAKE),
        Setting("statistics and guards of a device", {"LEVEL": "2", "GUARDS": "1"}, _DEVICE, Machine.FAKE),
        Setting("flight recorder of a device", _FLIGHT, _DEVICE, Machine.FAKE),
        Setting("watchpoints of a device", {**_WATCH, "ON_HIT": "save"}, _DEVICE, Machine.FAKE),
        Setting("CUDA: names", {"LEVEL": "3"}, _DEVICE, Machine.DRIVER),
        Setting("CUDA: tensors", {"LEVEL": "1", "PHASE": "both"}, _DEVICE, Machine.DRIVER),
        Setting("CUDA: statistics, guards", {"LEVEL": "2", "GUARDS": "1"}, _DEVICE, Machine.DRIVER),
        Setting("CUDA: hashes, summaries", {"LEVEL": "hash", "SUMMARIES": "1"}, _DEVICE, Machine.DRIVER),
        Setting("CUDA: flight recorder", _FLIGHT, _DEVICE, Machine.DRIVER),
        Setting("CUDA: watchpoints", {**_WATCH, "ON_HIT": "save"}, _DEVICE, Machine.DRIVER),
    )
}


@dataclass(frozen=True)
class Fault:
    """How calls fail.

    Attributes:
        kind: of the calls that count: MEMORY, SYSTEM or DEVICE.
        choice: which of the errors that a call may end with; one that has fewer does not fail.
        only: 0, or an errno: no calls count but those that may end with it.
        lasts: all that follow fail as well.
        part: of a short write, how many bytes are written, where there are more; 0: half of them.
    """

    kind: int
    choice: int = 0
    only: int = 0
    lasts: bool = False
    part: int = 0


@dataclass(frozen=True)
class Point:
    """One call that failed, and what is wrong with what came of it.

    Attributes:
        number: of the call, among those of its class.
        call: the name of the function that failed.
        error: "ENOSPC", "half" for a part of the bytes.
        place: the function of the runtime that made the call.
        lasts: those after it that may fail so failed as well.
        problems: empty if the model did not notice it, and what is missing is said.
        missing: how many records and files of the run are missing.
    """

    setting: str
    number: int
    call: str
    error: str
    place: str
    lasts: bool
    problems: Sequence[str]
    missing: int


def wrapped(source: Path) -> list[str]:
    """The functions that a source has fail, as the linker knows them."""
    return sorted({next(filter(None, found)) for found in _WRAPPED.findall(source.read_text())} - {"name"})


def build(folder: Path, machine: Machine) -> Built:
    """Compiles the host and the package into a folder."""
    runtime = _runtime(machine)
    failing_sources = [SOURCES / "faults.cpp", *([SOURCES / "driver_faults.cpp"] if machine is Machine.DRIVER else [])]
    strings, faults, package = (
        compiled(path, OPTIMIZE_OTHERS, flags=_FLAGS)
        for path in (SOURCES / "strings.cpp", SOURCES / "faults.cpp", SANITIZED / "package.cpp")
    )
    failing = folder / "failing.o"
    wraps = [f"-Wl,--wrap={name}" for source in failing_sources for name in wrapped(source)]
    _run(GXX, "-r", "-nostdlib", *wraps, *map(str, runtime), str(strings), "-o", str(failing))
    shim = [compiled(path, "-O0", flags=_FLAGS) for path in (SANITIZED / "shim.cpp", SHIMS / "tensors/dtype.cpp")]
    _run(GXX, *_FLAGS, "-shared", *map(str, shim), "-o", str(folder / "libshim.so"))
    objects = [failing, faults, package]
    if machine is Machine.FAKE:
        objects.append(compiled(HERE / "fake_device.cpp", OPTIMIZE_OTHERS, flags=_FLAGS))
    if machine is Machine.DRIVER:
        more = (*failing_sources[1:], *device_library.EMULATOR)
        objects += [compiled(path, OPTIMIZE_OTHERS, cuda_include(), flags=_FLAGS) for path in more]
    link = ("-shared", "-fopenmp", "-Wl,-Bsymbolic-functions", f"-L{folder}", "-lshim", f"-Wl,-rpath,{folder}")
    built = Built(folder / "host", folder / "plain.so", folder / "package.so", ())
    _run(GXX, *map(str, objects), *link, "-o", str(built.package))
    shutil.copy(built.package, built.plain)
    shutil.copy(_host(), built.host)
    named = subprocess.run(["nm", "-nC", "--defined-only", built.package], capture_output=True, text=True, check=True)
    lines = (line.split(None, 2) for line in named.stdout.splitlines())
    functions = [(int(begin, 16), name) for begin, kind, name in lines if kind in "tTwW"]
    return Built(built.host, built.plain, built.package, functions)


def _host() -> Path:
    """The host, compiled once."""
    source, words = SOURCES / "host.cpp", ("-std=c++17", "-O1", "-pthread")
    files = contents(source, *SOURCES.glob("*.h"))
    return kept("host", [*files, *words], lambda path: _run(GXX, *words, str(source), "-ldl", "-o", str(path)))


def cuda_include() -> Path:
    """The directory of a cuda.h."""
    found = device_library.cuda_include()
    assert found is not None, "no cuda.h: neither a CUDA toolkit nor triton is installed"
    return found


def _runtime(machine: Machine) -> list[Path]:
    if machine is Machine.DRIVER:
        return any_runtime("cuda", cuda_include())
    return [path for path in any_runtime() if machine is Machine.CPU or path.stem != CPU_UNIT]


@dataclass(frozen=True)
class _Round:
    """What the runs of one round have recorded.

    Attributes:
        facts: records and files, without addresses, times and threads.
        notes: about what is missing.
    """

    facts: frozenset[Any]
    notes: tuple[str, ...]
    problems: tuple[str, ...]


class Injection:
    """One setting: runs its points and judges them.

    Attributes:
        journal: of a run in which nothing fails.
        seconds: that the host may take for some points; `points` then raises TimeoutExpired.
    """

    def __init__(self, built: Built, setting: Setting, folder: Path) -> None:
        self.built, self.setting, self.folder = built, setting, folder
        self.seconds = 3600.0
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (line,) = self._host(Fault(SYSTEM), NONE, 1)
        assert line[:3] == [str(NONE), "0", "0"], line
        self.growth = _growth(line)
        base = [_read_round(folder / str(NONE) / str(number)) for number in range(3)]
        assert [round_.problems for round_ in base] == [()] * 3, base
        self.base = base[0]
        assert self.base.facts, "nothing is recorded"
        assert base[2].facts == self.base.facts, base[2].facts ^ self.base.facts
        self.said = set(_said(folder / str(NONE)))
        self.journal = next((folder / str(NONE)).rglob("journal.bin")).read_bytes()
        shutil.rmtree(folder / str(NONE))

    def points(self, fault: Fault, *, first: int = 0, step: int = 1, most: int = NONE) -> Iterator[Point]:
        """Has call after call, each `step`-th, fail until there is none left, and judges what comes of each."""
        done = 0
        while done < most:
            batch = min(_BATCH, most - done)
            lines = list(self._host(fault, first + done * step, batch, step=step))
            for line in lines:
                if line[2] != "0":
                    yield self._judge(line, fault)
                else:
                    _shared(self.folder / line[0])  # of a run that nothing was done to
                shutil.rmtree(self.folder / line[0], ignore_errors=True)
            done += batch
            if len(lines) < batch:
                return

    def _host(self, fault: Fault, first: int, most: int, *, step: int = 1, rounds: int = 3) -> Iterator[list[str]]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AOTI_DEBUG_")}
        environment |= {f"AOTI_DEBUG_{name}": value for name, value in self.setting.variables.items()}
        environment |= {"AOTI_DEBUG_KEEP_FREE_BYTES": "0", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
        environment |= {"HOST_TYPE": SMALL, "HOST_ROUNDS": str(rounds), **self.setting.host}
        count = EVERY if fault.lasts else 1
        given = (fault.kind, fault.choice, fault.only, fault.part, count, first, step, most)
        numbers = [str(number) for number in given]
        command: list[str | Path] = [self.built.host, self.built.plain, self.built.package, self.folder, *numbers]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        ) as host:
            try:
                output, errors = host.communicate(timeout=self.seconds)
            except subprocess.TimeoutExpired:
                os.killpg(host.pid, signal.SIGKILL)  # the process of a point, too
                raise
        assert host.returncode == 0, errors
        return (line.split() for line in output.splitlines())

    def _grows(self, growth: Sequence[int], fault: Fault) -> list[str]:
        more = [now - before for now, before in zip(growth, self.growth, strict=True)]
        named = zip(("descriptors", "mapped bytes", "heap bytes"), more, GROWTH, strict=True)
        # What a driver that fails for good may still write to is kept: the flight recorder, reports of guards.
        # Without guards, which have the package stay loaded, each load of it has a state that stays.
        is_reloaded = self.setting.machine is Machine.DRIVER and "GUARDS" in self.setting.variables
        # A copy into the flight recorder's memory whose end the driver refused to mark is not known to be over.
        is_unmarked = fault.kind == DEVICE and (fault.lasts or "FLIGHT" in self.setting.variables)
        kept = ("mapped bytes", "heap bytes") if is_reloaded or is_unmarked else ()
        return [f"{what} grow by {grows} a round" for what, grows, most in named if grows > most and what not in kept]

    def _keeps_growing(self, fault: Fault, number: int) -> list[str]:
        """What grows in each of several processes; stacks of threads that end at other times do so in one."""
        grows: list[str] = []
        for _ in range(_GROWING):
            shutil.rmtree(self.folder / str(number))
            (again,) = self._host(fault, number, 1, rounds=8)
            _shared(self.folder / str(number))
            grows = self._grows(_growth(again), fault)
            if not grows:
                break
        return grows

    def _instead(self, round_: _Round) -> Set[Any]:
        """Files in place of others, which a note misses: of a watchpoint's later hit, or of what a limit left out."""
        if round_.notes == self.base.notes or not self.base.facts - round_.facts:
            return set()
        files = {fact for fact in round_.facts if fact[1] == "TensorFile"}
        hits = {fact[2] for fact in self.base.facts if fact[1] == "WatchHitRecord"}
        return files if "MAX_FILES" in self.setting.variables else {fact for fact in files if fact[2] in hits}

    def _judge(self, line: Sequence[str], fault: Fault) -> Point:
        number, status, error, offset = (int(line[place]) for place in (0, 1, 4, 5))
        folder = self.folder / str(number)
        shown = "half" if error < 0 else (_DRIVER_ERRORS if fault.kind == DEVICE else errno.errorcode)[error]
        problems = [*_ended(status)]
        rounds = [_read_round(folder / str(n)) for n in range(3)] if status == 0 else []
        for n, round_ in enumerate(rounds):
            problems += [f"round {n}: {problem}" for problem in round_.problems]
            if more := round_.facts - self.base.facts - self._instead(round_):
                problems.append(f"round {n}: {len(more)} records or files more, as {min(map(str, more))}")
        missing = max((len(self.base.facts - round_.facts) for round_ in rounds[:2]), default=0)
        said = [text for text in _said(folder) if text not in self.said]
        notes = {note for round_ in rounds[:2] for note in round_.notes} - set(self.base.notes)
        if missing and not said and not notes:
            problems.append(f"{missing} records or files are missing, and nothing says so")
        if shown in KEPT and not fault.lasts and rounds and self.base.facts - rounds[0].facts:
            problems.append(f"records or files are missing: {sorted(rounds[0].notes) or said}")
        if rounds and rounds[2].facts != self.base.facts:
            problems.append("the run after it is not complete")
        if int(line[6]):
            problems = [problem for problem in problems if "leads nowhere" not in problem]  # it could not be removed
        problems += [f"stays in /dev/shm: {file.path}" for file in _shared(folder) if not int(line[6])]
        if status == 0 and self._grows(_growth(line), fault):
            problems += self._keeps_growing(fault, number)
        place = self.built.function_at(offset)
        return Point(self.setting.name, number, line[3], shown, place, fault.lasts, tuple(problems), missing)


def _growth(line: Sequence[str]) -> list[int]:
    return [int(word) for word in line[7:]]


def _ended(status: int) -> Iterator[str]:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        yield "the process hangs" if number == signal.SIGALRM else f"the process ended by {signal.Signals(number).name}"
    elif os.WEXITSTATUS(status) == 3:
        yield "another result than at level 0"
    elif status != 0:
        yield f"exit status {os.WEXITSTATUS(status)}"


def _said(folder: Path) -> list[str]:
    """What the runtime has printed about itself."""
    lines = (folder / "output").read_text(errors="replace").splitlines()
    return [line.replace(str(folder), "") for line in lines if line.startswith("aoti-debug: ")]


def _shared(folder: Path) -> list[shared_files.SharedFile]:
    """Memory that the runs of a folder have left and that no run leads to; all of it is removed."""
    ours = [(file, run) for file in shared_files.all_files() if (run := file.run_directory()) and folder in run.parents]
    # What is gone by now was being collected by another process of aoti-debug.
    left = [file for file, run in ours if shared_files.linked(run, file.name) != file.path and file.path.exists()]
    for file, _ in ours:
        file.path.unlink(missing_ok=True)
    return left


def _read_round(folder: Path) -> _Round:
    facts: set[Any] = set()
    notes: list[str] = []
    problems: list[str] = []
    problems += _stray(folder)
    for path in sorted([*folder.glob("2*"), *folder.glob("2*/process-*"), *folder.glob("2*/rank*[0-9]")]):
        if (path / "ranks.json").exists():
            continue
        where = "process" if path.name.startswith("process") else "run"
        if not (path / "run.json").exists():
            problems.append(f"{path.name} has no run.json: {sorted(os.listdir(path))}")
            continue
        try:
            run = run_directory.open_run(path)
            if not has_gaps(run):  # a run that has some does not claim how the model went on
                facts.add((where, "state", run.state.value))
            content = run.journal
            if content is None:
                continue
            if content.damaged_blocks:
                problems.append("the journal is damaged")
            for record in factories.records_of(content):
                if isinstance(record, records.NoteRecord):
                    notes.append(record.text.replace(str(path), ""))
                    continue
                if isinstance(record, (records.TensorStats, records.TensorFile)) and record.reason:
                    notes.append(record.reason)
                if isinstance(record, records.LaunchEnd) and record.not_started:
                    facts.add((where, "not started", record.key))
                facts.update((where, *fact) for fact in _facts_of(record, path, problems))
        except AotiDebugError as error:
            problems.append(f"cannot be read: {error}")
    return _Round(frozenset(facts), tuple(notes), tuple(problems))


def _facts_of(record: records.Record, path: Path, problems: list[str]) -> Iterator[tuple[Any, ...]]:
    """What a record says that is the same in every run."""
    if isinstance(record, records.TensorStats) and record.hash is not None:  # which may come without the rest
        yield "hash", record.key, record.slot, record.phase, record.hash
        if record.statistics is None:
            return
    if (fact := _fact(record, path, problems)) is not None:
        yield fact


def _fact(record: records.Record, path: Path, problems: list[str]) -> tuple[Any, ...] | None:
    """The whole of it; None for what may differ."""
    name = type(record).__name__
    if isinstance(record, records.LaunchBegin):
        values = tuple((slot, v.layout if isinstance(v, Tensor) else v) for slot, v in record.values.decode().items())
        return name, record.key, record.site, record.loops, values
    if isinstance(record, records.LaunchEnd):
        return name, record.key, record.status
    if isinstance(record, records.GridRecord):
        return name, record.key, record.kernel, record.grid, record.num_warps, record.shared_bytes
    if isinstance(record, records.TensorFile):
        if not record.path:
            return None
        file = path / record.path
        if not file.exists():
            problems.append(f"{record.path} is recorded and missing")
            return None
        return name, record.key, record.slot, record.phase, record.path, sha256(file.read_bytes()).hexdigest()
    if isinstance(record, records.TensorStats):
        return None if record.reason else (name, *record[2:])
    if isinstance(record, records.CallBegin):
        return name, record.kind, record.call
    if isinstance(record, records.WatchHitRecord):
        return name, record.key, record.watch, record.slot, record.phase, record.statistic, record.value
    if isinstance(record, records.CallEnd):  # where recording stops, it counts the launches before
        return name, record.kind, record.call, record.failed
    if isinstance(record, records.RunEnd):  # which says as well whether the recording had stopped
        return (name,)
    if isinstance(record, (records.ClockRecord, records.WatchCountRecord)):
        return None
    return name, *record[2:]


def _stray(path: Path) -> Iterator[str]:
    """Names that no run has: temporary files, links that lead nowhere, files that are empty."""
    for folder, _, names in os.walk(path):
        for name in names:
            file = Path(folder, name)
            if ".tmp" in name:
                yield f"a temporary file: {file.relative_to(path)}"
            elif file.is_symlink() and not file.exists() and not name.startswith((".owner", ".node-")):
                yield f"a link that leads nowhere: {file.relative_to(path)}"
