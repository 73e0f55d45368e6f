"""Has calls of a command to the system fail, one after the other, and looks at what it says and leaves.

A command runs in a fork of a process that has imported what it imports, in a fresh copy of a folder. Only calls for
files below that folder fail (preloaded.cpp), in the command and in the Python processes that it starts.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import importlib
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aoti_debug.app.cli import main
from aoti_debug.base.errors import EXIT_INCOMPLETE
from aoti_debug.base.machine.processes import python_process
from aoti_debug.runs.run.protocol import PRELOADED

HERE = Path(__file__).parent
COMPILER = HERE / "remembering_compiler.sh"
EVERY = 2**40  # so many calls fail: all that follow
NONE = 2**40  # the number of a call that is never made
SECONDS = 60  # that a command may take; it says where it is some seconds before
_STATE_BYTES = 1 << 16  # of the file with the state of preloaded.cpp
WORK, CACHE, TEMPORARY = "work", "cache", "tmp"  # in the folder: where the command runs, its cache, TMPDIR
_STAMP = re.compile(r"\d{8}-\d{6}-\d+|\b[0-9a-f]{64}\b|\b[0-9a-f]{32}\b|\d{3,}")
_KEPT = f"{CACHE}/aoti_debug/logs/"  # which an error names
TRIAGE = "triage"  # its runs stay where it fails; it has ended if these files are there
_OF_TRIAGES = ("triage.json", "index.html")
COMPILING = ("build", TRIAGE)  # commands whose processes are forked from one that has lowered a model
LOWERED = ("torch._inductor.compile_fx", "tests.lowered_once")  # what torch makes once is there
IMPORTED = (*PRELOADED, "aoti_debug.instrument.frontend.worker.lower")
_LIST = "modules.json"
# What could not be removed is there; `rmtree` opens folders by their names within others.
_REMOVAL = re.compile(r"(in a worker: )?(unlink|rmdir|openat(64)? [^/]+\Z)")
_SCRATCH = f"{CACHE}/aoti_debug/scratch/"
_OTHER_CACHE = f"{TEMPORARY}/aoti_debug-"  # where the cache is as long as its own place cannot be made
_OTHER_STATE = f"{CACHE}/aoti_debug/made_here/"  # the same of hashes of what was made here
_ELF = struct.Struct("<40xQ10xHH2x")  # of 64 bits: where the sections' headers begin, the size of one, their number
_WARNING = 5  # seconds
_LARGE = 1 << 16  # bytes
_RUN_AGAIN = 4  # after so many points a command that compiles is run again without a fault


@dataclass(frozen=True)
class Fault:
    """How calls fail.

    Attributes:
        error: an errno; or minus a signal, which comes before a call.
        lasts: all that follow and may fail so fail as well.
    """

    error: int
    lasts: bool = False


@dataclass(frozen=True)
class Point:
    """A call that failed, and what is wrong with what came of it.

    Attributes:
        command: its arguments.
        number: of the call, among those that may fail so.
        call: its function and path.
        code: the exit code.
        said: what was printed on stderr.
    """

    command: str
    number: int
    call: str
    code: int
    said: str
    problems: Sequence[str]


@dataclass(frozen=True)
class _Ended:
    status: int
    call: str
    calls: int
    said: str

    @property
    def code(self) -> int:
        return os.waitstatus_to_exitcode(self.status)


Tree = Set[str]  # paths without their numbers


def compile_library(folder: Path) -> Path:
    """Compiles the library that processes are started with."""
    library, partial = folder / "preloaded.so", folder / f"preloaded.{os.getpid()}"
    command = [os.environ.get("CXX", "g++"), "-std=c++17", "-O1", "-fPIC", "-shared"]
    subprocess.run([*command, str(HERE / "preloaded.cpp"), "-o", str(partial), "-ldl"], check=True)
    return partial.replace(library)  # processes of another benchmark may have loaded an older one


class Worker:
    """A process that has what a command needs, and has its calls fail.

    Args:
        library: of `compile_library`.
        template: a folder with WORK, CACHE and TEMPORARY.
        seconds: that the command may take.
    """

    def __init__(self, library: Path, template: Path, arguments: Sequence[str], seconds: int = SECONDS) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AOTI_DEBUG_")}
        environment |= {"LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._folder = tempfile.TemporaryDirectory(dir=template.parent)
        folder = Path(self._folder.name, "at")
        environment |= remembering_compiler(folder, template.parent)
        state = Path(self._folder.name) / "state"
        state.write_bytes(bytes(_STATE_BYTES))
        environment["COMMAND_FAULTS"] = str(state)
        request = {"library": str(library), "template": str(template), "arguments": list(arguments), "seconds": seconds}
        command = [sys.executable, "-m", __name__, json.dumps({**request, "folder": str(folder)})]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, text=True, start_new_session=True
        )

    def points(self, fault: Fault, *, first: int = 0, step: int = 1) -> Iterator[Point]:
        """Has each `step`-th call fail, from call `first` on, until there is none left.

        Raises:
            EOFError: the process ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**asdict(fault), "first": first, "step": step}) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            point = json.loads(line)
            if point is None:
                return
            yield Point(**point)
        raise EOFError("the process that has calls fail has ended")

    def kill(self) -> None:
        """Ends it, in the middle of a point too."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Ends it and removes what it has written."""
        self.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        shutil.rmtree(self._folder.name, ignore_errors=True)
        self._folder.cleanup()


def points(
    library: Path, template: Path, arguments: Sequence[str], fault: Fault, *, first: int = 0, step: int = 1
) -> Iterator[Point]:
    """The points of one worker, which is closed at the end."""
    with contextlib.closing(Worker(library, template, arguments)) as worker:
        yield from worker.points(fault, first=first, step=step)


class _Command:
    """A command in its folder."""

    def __init__(
        self, library: str, template: Path, arguments: Sequence[str], folder: Path, seconds: int = SECONDS
    ) -> None:
        self._seconds = seconds
        self._tried = 0
        self._library = ctypes.CDLL(library)
        self._library.call_failed.restype = ctypes.c_char_p
        self._library.calls_made.restype = ctypes.c_long
        self._library.fail_calls.argtypes = (ctypes.c_char_p, ctypes.c_long, ctypes.c_long, ctypes.c_int)
        self._template, self._cache, self._arguments = template, template / CACHE, list(arguments)
        self.folder = folder
        self._notes = folder.with_name("notes")
        self._notes.mkdir()
        self.before = tree(template)
        self._has_cache = any((template / CACHE).iterdir())
        self._import()
        self.fresh()
        self.base = self.run(Fault(0), NONE)
        self.after = tree(self.folder)
        self._entries = entries(template) | entries(self.folder)
        if arguments[0] == TRIAGE:  # what it compiles is what `build` does
            self._cache = self._notes / CACHE
            _copy(self.folder / CACHE, self._cache)
        made = {path for path in self.after - self.before if path.startswith(WORK)}
        self._results = {path for path in made if arguments[0] != TRIAGE or Path(path).name in _OF_TRIAGES}
        self._wanted = self._results if arguments[0] == TRIAGE else self.after
        self._repeated = self.run(Fault(0), NONE)  # one that writes a file refuses to write it again

    def _import(self) -> None:
        """Imports what the command imports, in a child that lists it first."""
        self.fresh()
        pid = os.fork()
        if pid == 0:
            self._enter()
            with contextlib.suppress(SystemExit):
                main.main()
            (self._notes / _LIST).write_text(json.dumps(sorted(sys.modules)))
            os._exit(0)
        os.waitpid(pid, 0)
        for name in json.loads((self._notes / _LIST).read_text()):
            with contextlib.suppress(Exception):
                importlib.import_module(name)

    def _enter(self) -> None:
        os.chdir(self.folder / WORK)
        os.environ |= places(self.folder)
        tempfile.tempdir = None
        sys.argv = ["aoti-debug", *self._arguments]
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor, name in ((1, "out"), (2, "err")):
            file = os.open(self._notes / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, descriptor)
            os.close(file)

    def fresh(self) -> None:
        """Makes the folder as it was."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for name, source in ((WORK, self._template / WORK), (TEMPORARY, self._template / TEMPORARY)):
            _copy(source, self.folder / name)
        _copy(self._cache, self.folder / CACHE)

    def run(self, fault: Fault, first: int) -> _Ended:
        """Runs it once in the folder as it is."""
        pid = os.fork()
        if pid == 0:
            signal.alarm(self._seconds)
            self._enter()
            faulthandler.dump_traceback_later(max(self._seconds - _WARNING, 1), file=2)
            count = EVERY if fault.lasts else 1
            self._library.fail_calls(str(self.folder).encode(), first, count, fault.error)
            code: object = 70
            try:
                main.main()
            except SystemExit as exit_:
                code = exit_.code
            with contextlib.suppress(SystemExit):
                threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does
                atexit._run_exitfuncs()
            calls, failed = self._library.calls_made(), self._library.call_failed().decode(errors="replace")
            self._library.fail_calls(b"", 0, 0, 0)
            (self._notes / "calls").write_text(f"{calls} {failed}")
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code if isinstance(code, int) else 0)
        _, status = os.waitpid(pid, 0)
        text = (self._notes / "calls").read_text() if (self._notes / "calls").exists() else "0 "
        (self._notes / "calls").unlink(missing_ok=True)
        calls, _, failed = text.partition(" ")
        said = (self._notes / "err").read_text(errors="replace")
        return _Ended(status, failed.replace(str(self.folder), ""), int(calls), said)

    def point(self, fault: Fault, number: int) -> Point | None:
        """Has one call fail; None if there is none of this number."""
        self.fresh()
        ended = self.run(fault, number)
        if ended.status == 0 and not ended.call and ended.calls <= number:
            return None
        found = tree(self.folder)
        problems = list(self._problems(ended, fault, found))
        self._tried += 1
        if self._arguments[0] in COMPILING and self._tried % _RUN_AGAIN:
            return Point(shlex.join(self._arguments), number, ended.call, ended.code, ended.said, problems)
        again = self.run(Fault(0), NONE)
        is_done = ended.code == self.base.code or (fault.error < 0 and self._results <= found)
        if again.code != (self._repeated.code if is_done else self.base.code):
            problems.append(f"run again: exit code {again.code}: {again.said.strip()[:300]}")
        elif missing := sorted(self._wanted - tree(self.folder)):
            problems.append(f"run again: {missing} is missing")
        elif left := sorted(path for path in tree(self.folder) if path.startswith(_SCRATCH)):
            problems.append(f"run again: is still left: {left}")
        return Point(shlex.join(self._arguments), number, ended.call, ended.code, ended.said, problems)

    def _may_stay(self, path: str) -> bool:
        """True for a log that an error names, another cache, and what a run leaves that a triage has made."""
        if path.startswith(_OTHER_CACHE):
            return not self._has_cache
        if path.startswith(_OTHER_STATE):
            return True
        is_of_run = self._arguments[0] == TRIAGE and "/runs/" in path and not path.endswith(".part")
        return is_of_run or path.startswith(_KEPT)

    def _problems(self, ended: _Ended, fault: Fault, now: Tree) -> Iterator[str]:
        ours = self._results
        if os.WIFSIGNALED(ended.status):
            number = os.WTERMSIG(ended.status)
            yield "it hangs" if number == signal.SIGALRM else f"it ended by {signal.Signals(number).name}"
        if "Traceback" in ended.said or ended.code == 70:
            yield f"a traceback: {ended.said.strip()[-300:]}"
        left = sorted(path for path in now - self.before - self.after if not self._may_stay(path))
        if left and (fault.error < 0 or not _REMOVAL.match(ended.call)):
            yield f"is left: {left}"
        if other := sorted(entries(self.folder) - self._entries):
            yield f"no whole entries of the cache, with their sizes: {other}"
        if ended.code == self.base.code:
            if missing := sorted(self._results - now):
                yield f"exit code {ended.code}, and is missing: {missing}"
            return
        if self._arguments[0] == TRIAGE and ended.code == EXIT_INCOMPLETE and ours <= now:
            return  # it says what was not compared
        is_whole = fault.error < 0 and ours <= now  # the signal came as it was done
        half = sorted(path for path in ours & now if Path(path).name != _OF_TRIAGES[0])  # that one is whole
        if half and not is_whole:
            yield f"exit code {ended.code}, and is there: {half}"
        if fault.error < 0:
            if ended.code != 128 - fault.error:
                yield f"exit code {ended.code} after signal {-fault.error}"
            return
        lines = ended.said.strip().splitlines()
        errors, hints = ([line for line in lines if line.startswith(word)] for word in ("error: ", "hint: "))
        if not 2 <= ended.code <= 6 or len(errors) != 1 or len(hints) != 1:
            yield f"exit code {ended.code}, {len(errors)} errors, {len(hints)} hints: {ended.said.strip()[-300:]}"


def places(folder: Path) -> dict[str, str]:
    """The variables that have a command keep everything in a folder."""
    cache = str(folder / CACHE)
    return {"XDG_CACHE_HOME": cache, "HOME": cache, "TMPDIR": str(folder / TEMPORARY)}


def remembering_compiler(folder: Path, beside: Path) -> dict[str, str]:
    """The variables that have a command in a folder compile a text once: the same for all folders beside each other."""
    compiled = beside / "compiled"
    compiled.mkdir(exist_ok=True)
    compiler = shutil.which(os.environ.get("CXX", "g++")) or "g++"
    return {"CXX": str(COMPILER), "COMPILER": compiler, "COMPILED": str(compiled), "COMPILED_FOR": str(folder)}


def tree(folder: Path) -> Tree:
    """The files and links in a folder."""
    found = set()
    for base, folders, files in os.walk(folder):
        for name in (*files, *(name for name in folders if (Path(base) / name).is_symlink())):
            found.add(_STAMP.sub("N", str(Path(base, name).relative_to(folder))))
    return found


def entries(folder: Path) -> Set[tuple[str, int]]:
    """The files of the cache that later commands use: paths without numbers, and sizes in bytes, 0 of whole objects.

    The code that torch 2.11 generates, and so its object, differs from run to run.
    """
    cache = folder / CACHE / "aoti_debug"
    files = (path for path in cache.glob("*/*/**/*") if path.is_file())
    found = {(str(path.relative_to(folder)), 0 if _is_whole_object(path) else path.stat().st_size) for path in files}
    return {(_STAMP.sub("N", path), size) for path, size in found if not path.startswith(_SCRATCH)}


def _is_whole_object(path: Path) -> bool:
    """True for an object file of ELF that has all of its sections' headers, which come last."""
    if path.suffix != ".o":
        return False
    with path.open("rb") as file:
        head = file.read(_ELF.size)
    if len(head) < _ELF.size or not head.startswith(b"\x7fELF"):
        return False
    begin, size, count = _ELF.unpack(head)
    return bool(path.stat().st_size == begin + size * count)


def _copy(source: Path, target: Path) -> None:
    """Copies a folder; large files, which nothing writes to once they are there, are the same ones."""

    def copy(one: str, other: str) -> None:
        if os.path.getsize(one) > _LARGE and not os.path.islink(one):
            os.link(one, other)
        else:
            shutil.copy2(one, other, follow_symlinks=False)

    shutil.copytree(source, target, symlinks=True, copy_function=copy)


def work(request: Mapping[str, Any]) -> None:
    """Prints a line for each point of the faults that stdin names, a line each, and `null` after those of one."""
    template, arguments, folder = Path(request["template"]), request["arguments"], Path(request["folder"])
    os.environ |= places(folder)  # as of the processes that the server forks
    for name in (WORK, CACHE, TEMPORARY):
        (folder / name).mkdir(parents=True)
    imported = (*IMPORTED, *(LOWERED if arguments[0] in COMPILING else ()))
    with python_process.forking_from(imported) as server:
        if arguments[0] in COMPILING:
            server.preload()
            server.wait()
        command = _Command(request["library"], template, arguments, folder, request["seconds"])
        assert command.base.code in (0, 1), command.base
        for line in sys.stdin:
            asked = json.loads(line)
            fault = Fault(asked["error"], lasts=asked["lasts"])
            for number in itertools.count(asked["first"], asked["step"]):
                point = command.point(fault, number)
                print(json.dumps(point and asdict(point)), flush=True)
                if point is None:
                    break


if __name__ == "__main__":
    work(json.loads(sys.argv[1]))
